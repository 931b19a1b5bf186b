/* Sets of byte ranges, as lists: appends make one long range, so a list is short. */

#include <stdlib.h>

#include "disk.h"

static struct range *made(int64_t from, int64_t to, struct range *next) {
    struct range *range = malloc(sizeof *range);
    if (range == NULL)
        disk_give_up("no memory");
    range->from = from;
    range->to = to;
    range->next = next;
    return range;
}

void range_add(struct range **ranges, int64_t from, int64_t to) {
    if (from >= to)
        return;
    for (struct range **at = ranges; *at != NULL;) {
        struct range *old = *at;
        if (old->to < from || to < old->from) {
            at = &old->next;
            continue;
        }
        if (old->from < from)
            from = old->from;
        if (old->to > to)
            to = old->to;
        *at = old->next;
        free(old);
    }
    *ranges = made(from, to, *ranges);
}

int range_subtract(struct range **ranges, int64_t from, int64_t to) {
    int found = 0;
    for (struct range **at = ranges; *at != NULL;) {
        struct range *old = *at;
        if (old->to <= from || to <= old->from) {
            at = &old->next;
            continue;
        }
        found = 1;
        *at = old->next;
        if (old->from < from)
            *at = made(old->from, from, *at);
        if (to < old->to)
            *at = made(to, old->to, *at);
        free(old);
        while (*at != NULL && (*at)->to <= from)
            at = &(*at)->next;
    }
    return found;
}

void range_free(struct range **ranges) {
    while (*ranges != NULL) {
        struct range *first = *ranges;
        *ranges = first->next;
        free(first);
    }
}
