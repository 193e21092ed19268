/* Names of the fields of a struct, and how they are found in records: in JSON with the closing quote, in MessagePack
 * with the length in front.
 *
 * Most records of a topic are alike, so each name remembers which one followed it last: that one is looked for first, by
 * a comparison or two. Undeclared names are remembered as well, so that they are not searched for again.
 */
#ifndef TIDEGATE_JSON_NAMES_H
#define TIDEGATE_JSON_NAMES_H

#include "arrow.h"
#include "json_text.h"

typedef struct name {
    uint64_t head;        /* its first bytes, with the closing quote, in the order of memory */
    uint64_t mask;        /* of those bytes in a word */
    const uint8_t *bytes; /* with the closing quote */
    int32_t size;
    int32_t field; /* its place among the fields, or STRANGER */
    struct name *next;
} name;

enum { STRANGER = -1 };

typedef struct vocabulary {
    name start; /* no name: what follows it is the first of a record */
    name lost;  /* for all undeclared names that are not remembered */
    name *names;
    int32_t count;
    int32_t strangers;
    int32_t *slots; /* 1 + place of a name, 0: none */
    uint32_t slot_mask;
} vocabulary;

#pragma GCC visibility push(hidden)

/* Room for this many fields, and for some undeclared names. Returns false if memory is missing. */
bool names_begin(vocabulary *words, arena *scratch, int32_t fields);

/* The name of the next field, without a quote at its end; it is copied. */
bool names_add(vocabulary *words, arena *scratch, const char *bytes, int32_t length);

/* The same for all of these bytes, which stay where they are as long as `words`. */
void names_add_bytes(vocabulary *words, const uint8_t *bytes, int32_t size);

/* A name that was not foreseen, with its closing quote. It stays where it is as long as `words`. */
name *names_find(vocabulary *words, const uint8_t *bytes, int32_t size);

/* The same for one with escapes, which are valid. NULL: it is so long that it is left over. */
name *names_find_escaped(vocabulary *words, const uint8_t *bytes, int32_t size);

#pragma GCC visibility pop

static inline uint64_t read_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* Whether this name, with its quote, is at this position. */
static inline bool name_is_here(const name *this, const uint8_t *at, const uint8_t *end)
{
    int32_t size = this->size;
    if (UNLIKELY(end - at < 8 || end - at < size))
        return end - at >= size && size > 0 && memcmp(at, this->bytes, (size_t)size) == 0;
    if (((read_word(at) ^ this->head) & this->mask) != 0 || size == 0)
        return false;
    if (size <= 8)
        return true;
    if (size <= 16)
        return read_word(at + size - 8) == read_word(this->bytes + size - 8);
    return memcmp(at + 8, this->bytes + 8, (size_t)size - 8) == 0;
}

#endif
