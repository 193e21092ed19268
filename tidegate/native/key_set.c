/* See key_set.h. */
#include "key_set.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 product;

enum { KEYS_FIRST = 16, KEY_BYTES_FIRST = 16, WORD = 8 };

/* Odd, with as many ones as zeros; which ones does not matter. */
static const uint64_t FACTOR = 0x9e3779b97f4a7c15, OTHER_FACTOR = 0xd6e8feb86659fd93;

static uint64_t fold(uint64_t one, uint64_t other)
{
    product both = (product)one * other;
    return (uint64_t)both ^ (uint64_t)(both >> 64);
}

static uint64_t load(const uint8_t *bytes, int64_t length)
{
    uint64_t word = 0;
    memcpy(&word, bytes, (size_t)length);
    return word;
}

/* The seed is secret, so keys that share a slot cannot be made on purpose. */
uint64_t hash_bytes(uint64_t seed, const uint8_t *bytes, int64_t length)
{
    uint64_t hash = fold(seed ^ (uint64_t)length, FACTOR);
    const uint8_t *end = bytes + length;
    for (; end - bytes > WORD; bytes += WORD)
        hash = fold(hash ^ load(bytes, WORD), OTHER_FACTOR);
    if (length >= WORD)
        hash ^= load(end - WORD, WORD);
    else
        for (int32_t shift = 0; bytes < end; shift += 8)
            hash ^= (uint64_t)*bytes++ << shift;
    return fold(fold(hash, FACTOR) ^ seed, OTHER_FACTOR);
}

static int64_t power_above(int64_t number)
{
    int64_t power = KEYS_FIRST;
    while (power < number)
        power *= 2;
    return power;
}

bool key_set_begin(key_set *set, int64_t keys)
{
    int64_t capacity = keys < KEYS_FIRST ? KEYS_FIRST : keys;
    *set = (key_set){.size = capacity * KEY_BYTES_FIRST, .capacity = capacity, .slot_count = power_above(2 * capacity)};
    set->bytes = malloc((size_t)set->size);
    set->ends = malloc((size_t)capacity * sizeof(int64_t));
    set->hashes = malloc((size_t)capacity * sizeof(uint64_t));
    set->slots = calloc((size_t)set->slot_count, sizeof(uint64_t));
    if (set->bytes != NULL && set->ends != NULL && set->hashes != NULL && set->slots != NULL)
        return true;
    key_set_end(set);
    return false;
}

void key_set_end(key_set *set)
{
    free(set->bytes);
    free(set->ends);
    free(set->hashes);
    free(set->slots);
    *set = (key_set){.count = 0};
}

uint8_t *key_set_room(key_set *set, int64_t length)
{
    if (length > set->size - set->used) {
        int64_t size = set->size * 2 > set->used + length ? set->size * 2 : set->used + length;
        uint8_t *grown = realloc(set->bytes, (size_t)size);
        if (grown == NULL)
            return NULL;
        set->bytes = grown;
        set->size = size;
    }
    return set->bytes + set->used;
}

/* The slot of a key, or the free one where it belongs. */
static int64_t slot_of(const key_set *set, const uint8_t *key, int64_t length, uint64_t hash)
{
    int64_t mask = set->slot_count - 1;
    for (int64_t at = (int64_t)(hash & (uint64_t)mask);; at = (at + 1) & mask) {
        uint64_t slot = set->slots[at];
        if (slot == 0)
            return at;
        if (slot >> 32 != hash >> 32)
            continue;
        int64_t there;
        const uint8_t *other = key_set_key(set, (int64_t)(slot & UINT32_MAX) - 1, &there);
        if (there == length && memcmp(other, key, (size_t)length) == 0)
            return at;
    }
}

static bool grow(key_set *set)
{
    int64_t capacity = set->capacity * 2, slot_count = set->slot_count * 2;
    if (capacity >= UINT32_MAX)
        return false;
    int64_t *ends = realloc(set->ends, (size_t)capacity * sizeof(int64_t));
    if (ends == NULL)
        return false;
    set->ends = ends;
    uint64_t *hashes = realloc(set->hashes, (size_t)capacity * sizeof(uint64_t));
    if (hashes == NULL)
        return false;
    set->hashes = hashes;
    uint64_t *slots = calloc((size_t)slot_count, sizeof(uint64_t));
    if (slots == NULL)
        return false;
    for (int64_t i = 0; i < set->count; i++) {
        uint64_t hash = hashes[i];
        int64_t at = (int64_t)(hash & (uint64_t)(slot_count - 1));
        while (slots[at] != 0)
            at = (at + 1) & (slot_count - 1);
        slots[at] = (hash >> 32) << 32 | (uint64_t)(i + 1);
    }
    free(set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    set->capacity = capacity;
    return true;
}

int64_t key_set_add(key_set *set, int64_t length, uint64_t hash)
{
    if (set->count == set->capacity && !grow(set))
        return NO_ROOM;
    int64_t at = slot_of(set, set->bytes + set->used, length, hash);
    if (set->slots[at] != 0)
        return (int64_t)(set->slots[at] & UINT32_MAX) - 1;
    int64_t number = set->count++;
    set->slots[at] = (hash >> 32) << 32 | (uint64_t)(number + 1);
    set->used += length;
    set->ends[number] = set->used;
    set->hashes[number] = hash;
    return number;
}

int64_t key_set_find(const key_set *set, const uint8_t *key, int64_t length, uint64_t hash)
{
    return (int64_t)(set->slots[slot_of(set, key, length, hash)] & UINT32_MAX) - 1;
}
