/* Where an expression may be computed with few bits. */
#include "op/map_expression.h"

/* Bit i: a share of child i is the same share of the node. */
static unsigned passes_shares(uint8_t kind)
{
    switch (kind) {
    case MAP_NEGATE:
    case MAP_ABS:
    case MAP_RELU:
        return 1;
    case MAP_MULTIPLY:
    case MAP_DIVIDE:
        return 3;
    case MAP_WHERE:
        return 6;
    default:
        return 0;
    }
}

void gki_map_shorten(map_expression *expression)
{
    bool reached[MAP_MAX_NODES] = {false};
    reached[expression->n_nodes - 1] = true;
    for (uint32_t i = expression->n_nodes; i-- > 0;) {
        map_node *node = &expression->nodes[i];
        if (!reached[i]) {
            continue;
        }
        for (unsigned child = 0; child < 3; child++) {
            if (passes_shares(node->kind) >> child & 1) {
                reached[node->child[child]] = true;
            }
        }
        if (gki_map_kinds[node->kind].twin != 0) {
            node->kind = gki_map_kinds[node->kind].twin;
        }
    }
}
