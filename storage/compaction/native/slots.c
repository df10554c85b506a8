/* A hash table with open addressing: a digest lies in the first slot from its home on that was free when it came.
 *
 * All memory is reserved at once, and the kernel gives its pages when they are written. So the table begins in a small
 * part of it and grows in place: never are there two tables, and `room` bounds what it takes at any time.
 */
#include "native.h"

#include <stdlib.h>

#define LEAST_ACTIVE 512
#define MOVED_LATER (UINT64_C(1) << 63)

/* One slot always stays free, or a search for what is not there would not end. */
bool make_slots(struct slots *slots, uint64_t room) {
    *slots = (struct slots){NULL, room, room < LEAST_ACTIVE ? room : LEAST_ACTIVE, 0};
    if (room <= SIZE_MAX / sizeof(struct slot)) slots->all = calloc((size_t)room, sizeof(struct slot));
    return slots->all != NULL;
}

static inline uint64_t home_of(const struct slots *slots, const struct digest *digest) {
    return (uint64_t)((unsigned __int128)digest->words[0] * slots->active >> 64);
}

static inline bool is_same(const struct digest *one, const struct digest *other) {
    return one->words[0] == other->words[0] && one->words[1] == other->words[1];
}

void prefetch_slot(const struct slots *slots, const struct digest *digest) {
    __builtin_prefetch(&slots->all[home_of(slots, digest)]);
}

struct slot *find_slot(const struct slots *slots, const struct digest *digest) {
    uint64_t at = home_of(slots, digest);
    while (slots->all[at].state != FREE && !is_same(&slots->all[at].digest, digest))
        if (++at == slots->active) at = 0;
    return &slots->all[at];
}

/* Takes one entry that has to move from its slot to where it belongs now. What lies there may have to move, too: it goes on
 * from there. */
static void move(struct slots *slots, struct slot *slot) {
    struct slot carried = *slot;
    slot->state = FREE;
    for (;;) {
        uint64_t at = home_of(slots, &carried.digest);
        while (slots->all[at].state != FREE && !(slots->all[at].state & MOVED_LATER))
            if (++at == slots->active) at = 0;
        const struct slot found = slots->all[at];
        carried.state &= ~MOVED_LATER;
        slots->all[at] = carried;
        if (found.state == FREE) return;
        carried = found;
    }
}

/* Whatever has moved stays, so nothing that is passed by on the way from a home becomes free again. */
static void grow(struct slots *slots) {
    const uint64_t before = slots->active;
    slots->active = before > slots->room / 2 ? slots->room : 2 * before;
    for (uint64_t i = 0; i < before; i++)
        if (slots->all[i].state != FREE) slots->all[i].state |= MOVED_LATER;
    for (uint64_t i = 0; i < before; i++)
        if (slots->all[i].state & MOVED_LATER) move(slots, &slots->all[i]);
}

void fill_slot(struct slots *slots, struct slot *slot, const struct digest *digest, uint64_t state) {
    *slot = (struct slot){*digest, state};
    slots->used++;
    if (slots->used > slots->active / 4 * 3 && slots->active < slots->room) grow(slots);
}

static uint64_t distance(const struct slots *slots, uint64_t from, uint64_t to) {
    return to >= from ? to - from : to + slots->active - from;
}

/* Those behind it that would not be found any more move up. */
void empty_slot(struct slots *slots, struct slot *slot) {
    uint64_t hole = (uint64_t)(slot - slots->all);
    for (uint64_t at = hole;;) {
        if (++at == slots->active) at = 0;
        if (slots->all[at].state == FREE) break;
        if (distance(slots, home_of(slots, &slots->all[at].digest), at) >= distance(slots, hole, at)) {
            slots->all[hole] = slots->all[at];
            hole = at;
        }
    }
    slots->all[hole].state = FREE;
    slots->used--;
}
