/* What programs that load many kernels need of AddressSanitizer. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#endif

#ifdef WITH_ASAN

const char *__asan_default_options(void);

/* Fibers change stacks, which fake stacks do not follow. The interception of __tls_get_addr guesses
 * at the C library's bookkeeping, and LeakSanitizer crashes where it guesses wrong. */
const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=0:intercept_tls_get_addr=0";
}

#else

typedef int nothing_without_asan;

#endif
