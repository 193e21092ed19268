/* Headers of consumed messages, read where the broker's answer has them.
 *
 * Asking librdkafka for the headers of a message allocates once for each of them, which costs more than all else that is
 * done with a small record. But the value of a message is still in the broker's response, and in format 2 (KIP-98) its
 * record's other parts are around it:
 *
 *     length | attributes, 1 byte | timestamp delta | offset delta | key length | key | value length | value | headers
 *     headers: their number, then of each: name length | name | value length | value
 *
 * All numbers are of variable length: seven bits a byte, the lowest first, the highest bit in all but the last byte, and
 * the sign in the lowest bit. Everything before the value is checked, back to the length of the record,
 * which gives the end of the headers. If anything is unexpected, librdkafka is asked. An older format has other
 * lengths in front of the value, in four bytes with the highest first: they are these bytes for no length but zero.
 */
#include "long.h"
#include "message.h"

#include <stdbool.h>
#include <string.h>

typedef int32_t (*headers_of)(const message *, void **);
typedef size_t (*count_of)(const void *);
typedef int32_t (*header_at)(const void *, size_t, const char **, const void **, size_t *);

/* Some bytes of a record, those that are read next. */
typedef struct {
    const uint8_t *at, *end;
} span;

typedef struct {
    const char *name;
    const void *value;
    int64_t name_length, value_length; /* -1: NULL */
} header;

enum { LENGTH_BYTES = 5, HEADERS_MAX = 100000, NEXT = 16 };

/* False where the bytes end in it. */
static bool read_number(span *left, int64_t *number)
{
    const uint8_t *after = read_long(left->at, left->end, number);
    if (after == NULL)
        return false;
    left->at = after;
    return true;
}

/* False where it is not in the bytes, or librdkafka, whose names end at a zero, cuts off the name: then librdkafka is
 * asked, so that it is the same whoever reads it. */
static bool read_header(span *left, header *one)
{
    if (!read_number(left, &one->name_length) || one->name_length < 0 || one->name_length > left->end - left->at)
        return false;
    one->name = (const char *)left->at;
    left->at += one->name_length;
    if (!read_number(left, &one->value_length) || one->value_length < -1 || one->value_length > left->end - left->at)
        return false;
    one->value = one->value_length < 0 ? NULL : left->at;
    left->at += one->value_length < 0 ? 0 : one->value_length;
    return memchr(one->name, 0, (size_t)one->name_length) == NULL;
}

/* The beginning of the length before some bytes; NULL if another number precedes them. */
static const uint8_t *before_length(const uint8_t *bytes, size_t size)
{
    uint64_t rest = (uint64_t)size << 1;
    int count = 1;
    for (uint64_t left = rest >> 7; left != 0; left >>= 7)
        count++;
    if (count > LENGTH_BYTES)
        return NULL;
    const uint8_t *begin = bytes - count;
    for (int at = 0; at < count; at++, rest >>= 7)
        if (begin[at] != ((rest & 0x7f) | (at + 1 < count ? 0x80 : 0)))
            return NULL;
    return begin;
}

/* Where the number begins that ends here. A byte without the highest bit must be before it. NULL: none ends here. */
static const uint8_t *before_number(const uint8_t *end)
{
    const uint8_t *at = end - 1;
    if (*at >= 0x80)
        return NULL;
    while (at[-1] >= 0x80 && end - at < LONG_BYTES)
        at--;
    return at;
}

/* Where the record ends that begins with its attributes, and has so many bytes at least. NULL: that is not known.
 *
 * The first record of a batch that was compressed has nothing before it: a byte that may be part of its length is looked
 * at only where the bytes after it are no length. A length that is too small may be found so, never one too large. */
static const uint8_t *end_of_record(const uint8_t *attributes, int64_t least)
{
    const uint8_t *at = attributes - 1;
    if (*at >= 0x80)
        return NULL;
    for (uint64_t bits = *at; attributes - at <= LENGTH_BYTES; bits = bits << 7 | (*at & 0x7f)) {
        if (signed_of(bits) >= least)
            return attributes + signed_of(bits);
        if (*--at < 0x80)
            return NULL;
    }
    return NULL;
}

/* The headers of a message, at their number. False: they have to be asked for. */
static bool find_headers(const message *one, span *headers)
{
    if (one->value == NULL || one->value_size == 0)
        return false;
    const uint8_t *at = before_length(one->value, one->value_size);
    if (at == NULL)
        return false;
    if (one->key == NULL) {
        if (*--at != 1) /* -1 */
            return false;
    } else if (one->key_size == 0 || one->key + one->key_size != at || (at = before_length(one->key, one->key_size)) == NULL)
        return false;
    const uint8_t *offset_delta = before_number(at);
    const uint8_t *timestamp_delta = offset_delta == NULL ? NULL : before_number(offset_delta);
    if (timestamp_delta == NULL || timestamp_delta[-1] != 0)
        return false;
    const uint8_t *attributes = timestamp_delta - 1;
    headers->at = one->value + one->value_size;
    headers->end = end_of_record(attributes, headers->at + 1 - attributes);
    return headers->end != NULL;
}

/* How many headers a message has in place, and the bytes of their names and values; -1: they have to be asked for. */
static int64_t count_in_place(const message *one, int64_t *bytes)
{
    span left;
    int64_t count;
    if (!find_headers(one, &left) || !read_number(&left, &count) || count < 0 || count > HEADERS_MAX)
        return -1;
    header each;
    *bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!read_header(&left, &each))
            return -1;
        *bytes += each.name_length + (each.value_length < 0 ? 0 : each.value_length);
    }
    return count;
}

/* How many headers each message has. Returns the number of all. `lists` has librdkafka's own where it was asked, else NULL. */
int64_t tg_count_headers(const message *const *messages, int64_t count, headers_of get, count_of count_headers,
                         const void **lists, int64_t *counts)
{
    int64_t all = 0, bytes;
    for (int64_t i = 0; i < count; i++) {
        lists[i] = NULL;
        counts[i] = count_in_place(messages[i], &bytes);
        if (counts[i] < 0) {
            void *list = NULL;
            counts[i] = get(messages[i], &list) == NO_ERROR && list != NULL ? (int64_t)count_headers(list) : 0;
            lists[i] = list;
        }
        all += counts[i];
    }
    return all;
}

/* The bytes of the names and values of a message's headers, from librdkafka. */
static int64_t ask_header_bytes(const message *one, headers_of get, count_of count_headers, header_at at)
{
    void *list = NULL;
    if (get(one, &list) != NO_ERROR || list == NULL)
        return 0;
    int64_t bytes = 0;
    size_t count = count_headers(list);
    for (size_t i = 0; i < count; i++) {
        const char *name = "";
        const void *value = NULL;
        size_t size = 0;
        at(list, i, &name, &value, &size);
        bytes += (int64_t)strlen(name) + (value == NULL ? 0 : (int64_t)size);
    }
    return bytes;
}

/* The bytes of all keys, values and headers. */
int64_t tg_record_bytes(const message *const *messages, int64_t count, headers_of get, count_of count_headers,
                        header_at at)
{
    int64_t all = 0, bytes;
    for (int64_t i = 0; i < count; i++) {
        const message *one = messages[i];
        if (i + 2 * NEXT < count)
            __builtin_prefetch(messages[i + 2 * NEXT]);
        if (i + NEXT < count && messages[i + NEXT]->value != NULL)
            __builtin_prefetch(messages[i + NEXT]->value + messages[i + NEXT]->value_size);
        if (count_in_place(one, &bytes) < 0)
            bytes = ask_header_bytes(one, get, count_headers, at);
        all += bytes + (one->key == NULL ? 0 : (int64_t)one->key_size) + (one->value == NULL ? 0 : (int64_t)one->value_size);
    }
    return all;
}

/* Names and values of all headers after each other, of messages that were counted. */
void tg_headers(const message *const *messages, const void *const *lists, const int64_t *counts, int64_t count,
                header_at get, const char **names, int32_t *name_lengths, const void **values, int32_t *value_lengths)
{
    int64_t place = 0;
    for (int64_t i = 0; i < count; i++) {
        span left = {NULL, NULL};
        int64_t number;
        if (lists[i] == NULL && counts[i] > 0) {
            find_headers(messages[i], &left);
            read_number(&left, &number);
        }
        for (int64_t j = 0; j < counts[i]; j++, place++) {
            header one = {"", NULL, 0, -1};
            if (lists[i] == NULL)
                read_header(&left, &one);
            else {
                size_t size = 0;
                get(lists[i], (size_t)j, &one.name, &one.value, &size);
                one.name_length = (int64_t)strlen(one.name);
                one.value_length = one.value == NULL ? -1 : (int64_t)size;
            }
            names[place] = one.name;
            name_lengths[place] = (int32_t)one.name_length;
            values[place] = one.value;
            value_lengths[place] = (int32_t)one.value_length;
        }
    }
}
