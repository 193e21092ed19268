/* The key groups of rows, by the canonical bytes of `state/keygroups.py`, and which of them goes to which subtask. */
#include "lent.h"
#include "xxh3.h"

#include <stdlib.h>

/* One number each with `_KINDS` in `key_groups.py`. */
enum kind { TEXT, OCTETS, TRUTH, INT8, INT16, INT32, INT64 };

enum { NUMBER_BYTES = 20, GROUP_OF_NULL = 0xff };

/* The canonical bytes of a row. */
typedef struct {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
} canonical;

static bool reserve(canonical *key, size_t more)
{
    if (more <= key->capacity - key->length)
        return true;
    size_t capacity = 2 * (key->length + more);
    uint8_t *bytes = realloc(key->bytes, capacity);
    if (bytes == NULL)
        return false;
    key->bytes = bytes;
    key->capacity = capacity;
    return true;
}

/* The decimal text of a number, right-aligned before `end`. */
static const uint8_t *write_number(uint8_t *end, int64_t number)
{
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--end = (uint8_t)('0' + left % 10);
    while ((left /= 10) != 0);
    if (number < 0)
        *--end = '-';
    return end;
}

static int64_t number_of(const struct ArrowArray *column, int32_t kind, int64_t row)
{
    switch (kind) {
    case INT8:
        return ((const int8_t *)lent_values(column, 1))[row];
    case INT16:
        return ((const int16_t *)lent_values(column, 2))[row];
    case INT32:
        return ((const int32_t *)lent_values(column, 4))[row];
    default:
        return ((const int64_t *)lent_values(column, 8))[row];
    }
}

/* The canonical bytes of a value that is not NULL. `room` has NUMBER_BYTES. */
static const uint8_t *canonical_of(const struct ArrowArray *column, int32_t kind, int64_t row, uint8_t *room,
                                   size_t *length)
{
    if (kind == TEXT || kind == OCTETS) {
        int32_t size;
        const uint8_t *bytes = lent_bytes(column, row, &size);
        *length = (size_t)size;
        return bytes;
    }
    if (kind == TRUTH) {
        bool yes = lent_boolean(column, row);
        *length = yes ? 4 : 5;
        return (const uint8_t *)(yes ? "true" : "false");
    }
    const uint8_t *text = write_number(room + NUMBER_BYTES, number_of(column, kind, row));
    *length = (size_t)(room + NUMBER_BYTES - text);
    return text;
}

/* Adds a value of a key of several columns: its length, a colon and its bytes, or the mark of NULL. */
static bool add_counted(canonical *key, const struct ArrowArray *column, int32_t kind, int64_t row)
{
    static const uint8_t digits[] = "0123456789abcdef";
    uint8_t room[NUMBER_BYTES], count_room[NUMBER_BYTES];
    if (!lent_known(column, row)) {
        if (!reserve(key, 2))
            return false;
        memcpy(key->bytes + key->length, "-:", 2);
        key->length += 2;
        return true;
    }
    size_t length;
    const uint8_t *bytes = canonical_of(column, kind, row, room, &length);
    size_t written = kind == OCTETS ? 2 * length : length;
    const uint8_t *count = write_number(count_room + NUMBER_BYTES, (int64_t)written);
    size_t count_bytes = (size_t)(count_room + NUMBER_BYTES - count);
    if (!reserve(key, count_bytes + 1 + written))
        return false;
    uint8_t *to = key->bytes + key->length;
    memcpy(to, count, count_bytes);
    to[count_bytes] = ':';
    to += count_bytes + 1;
    if (kind == OCTETS)
        for (size_t at = 0; at < length; at++) {
            to[2 * at] = digits[bytes[at] >> 4];
            to[2 * at + 1] = digits[bytes[at] & 15];
        }
    else if (length > 0)
        memcpy(to, bytes, length);
    key->length += count_bytes + 1 + written;
    return true;
}

static void hash_single(const struct ArrowArray *column, int32_t kind, int64_t count, uint64_t divisor, uint16_t *groups)
{
    static const uint8_t of_null[] = {GROUP_OF_NULL};
    uint8_t room[NUMBER_BYTES];
    for (int64_t row = 0; row < count; row++) {
        size_t length = 1;
        const uint8_t *bytes = of_null;
        if (lent_known(column, row))
            bytes = canonical_of(column, kind, row, room, &length);
        groups[row] = (uint16_t)(xxh3_64(bytes, length) % divisor);
    }
}

/* The key group of each row of these columns. Returns 0 if memory is missing. */
int32_t tg_key_groups(const struct ArrowArray *const *columns, const int32_t *kinds, int64_t width, int64_t count,
                      int64_t max_parallelism, uint16_t *groups)
{
    uint64_t divisor = (uint64_t)max_parallelism;
    if (width == 1) {
        hash_single(columns[0], kinds[0], count, divisor, groups);
        return 1;
    }
    canonical key = {NULL, 0, 0};
    bool done = true;
    for (int64_t row = 0; done && row < count; row++) {
        key.length = 0;
        for (int64_t at = 0; done && at < width; at++)
            done = add_counted(&key, columns[at], kinds[at], row);
        if (done)
            groups[row] = (uint16_t)(xxh3_64(key.bytes, key.length) % divisor);
    }
    free(key.bytes);
    return done;
}

/* The rows of each subtask, one subtask after the other, in order: rows of subtask i end at `ends[i]`. `owners` has the
 * subtask of each group. */
void tg_distribute(const uint16_t *groups, int64_t count, const uint16_t *owners, int64_t subtasks, uint32_t *rows,
                   int64_t *ends)
{
    for (int64_t at = 0; at < subtasks; at++)
        ends[at] = 0;
    for (int64_t row = 0; row < count; row++)
        ends[owners[groups[row]]]++;
    int64_t begin = 0;
    for (int64_t at = 0; at < subtasks; at++) {
        int64_t own = ends[at];
        ends[at] = begin;
        begin += own;
    }
    for (int64_t row = 0; row < count; row++)
        rows[ends[owners[groups[row]]]++] = (uint32_t)row;
}
