/* A set of keys, which are bytes, numbered in the order in which they were added.
 *
 * Functions return NULL, NO_ROOM or false where memory is missing.
 */
#ifndef TIDEGATE_KEY_SET_H
#define TIDEGATE_KEY_SET_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

typedef struct {
    uint8_t *bytes; /* of all keys, one after the other */
    int64_t used;
    int64_t size;
    int64_t *ends; /* where each key ends */
    uint64_t *hashes;
    int64_t count;
    int64_t capacity;
    uint64_t *slots; /* 0, or the upper half of a hash and one more than the number of a key */
    int64_t slot_count;
} key_set;

enum { NO_ROOM = -1 };

/* With room for this many keys before it grows. */
bool key_set_begin(key_set *set, int64_t keys);

void key_set_end(key_set *set);

/* Where the bytes of a key of at most this length are written before it is added. */
uint8_t *key_set_room(key_set *set, int64_t length);

/* Adds the key that was written there, unless the set has it. Returns its number. */
int64_t key_set_add(key_set *set, int64_t length, uint64_t hash);

/* The number of a key, or -1 if the set does not have it. */
int64_t key_set_find(const key_set *set, const uint8_t *key, int64_t length, uint64_t hash);

uint64_t hash_bytes(uint64_t seed, const uint8_t *bytes, int64_t length);

static inline const uint8_t *key_set_key(const key_set *set, int64_t number, int64_t *length)
{
    int64_t start = number == 0 ? 0 : set->ends[number - 1];
    *length = set->ends[number] - start;
    return set->bytes + start;
}

#pragma GCC visibility pop

#endif
