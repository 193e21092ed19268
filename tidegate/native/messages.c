/* What librdkafka has consumed, as columns: no object for each record.
 *
 * The messages stay librdkafka's until `tg_destroy`; addresses in columns are of its memory, and valid as long. Its
 * functions come as pointers, so this needs neither its headers nor one release of it.
 */
#include "lent.h"
#include "message.h"

#include <stdlib.h>

typedef struct {
    int64_t records;
    int64_t events;
    int64_t value_bytes;
} scanned;

typedef int64_t (*timestamp_of)(const message *, int32_t *);
typedef void (*destroy_message)(message *);

enum { NO_TIMESTAMP = 0 };

/* Moves the records to the front, the events (ends of partitions, errors) to `events`; both keep their order. */
void tg_scan(message **messages, int64_t count, message **events, const uint8_t **values, int32_t *lengths,
             int32_t *partitions, int64_t *offsets, const void **topics, scanned *found)
{
    int64_t records = 0, others = 0, bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        message *one = messages[i];
        if (one->err != NO_ERROR) {
            events[others++] = one;
            continue;
        }
        messages[records] = one;
        values[records] = one->value;
        lengths[records] = one->value == NULL ? -1 : (int32_t)one->value_size;
        partitions[records] = one->partition;
        offsets[records] = one->offset;
        topics[records] = one->topic;
        bytes += (int64_t)one->value_size;
        records++;
    }
    *found = (scanned){records, others, bytes};
}

/* Where the number of a partition is in the table of `tg_origins`, or an empty place. Its size is a power of two. */
static int64_t find_origin(const int32_t *table, int64_t size, const int32_t *partitions, const void *const *topics,
                           const int64_t *firsts, int64_t row)
{
    uint64_t hash = ((uint64_t)(uintptr_t)topics[row] ^ (uint64_t)(uint32_t)partitions[row]) * 0x9e3779b97f4a7c15u;
    int64_t at = (int64_t)(hash >> 32) & (size - 1);
    for (; table[at] != 0; at = (at + 1) & (size - 1)) {
        int64_t first = firsts[table[at] - 1];
        if (partitions[first] == partitions[row] && topics[first] == topics[row])
            break;
    }
    return at;
}

/* Numbers the partitions in the order in which they first occur. `firsts` and `lasts` have the first and the last row of
 * each. Returns how many there are; minus the first row whose offset is not above that of its predecessor in the
 * partition; or INT64_MIN where memory is missing. */
int64_t tg_origins(const int32_t *partitions, const void *const *topics, int64_t count, const int64_t *offsets,
                   int32_t *numbers, int64_t *firsts, int64_t *lasts)
{
    int64_t found = 0, size = 2;
    while (size < 2 * count)
        size *= 2;
    int32_t *table = calloc((size_t)size, sizeof(*table));
    if (table == NULL)
        return INT64_MIN;
    for (int64_t row = 0; row < count; row++) {
        if (row > 0 && partitions[row] == partitions[row - 1] && topics[row] == topics[row - 1]) {
            numbers[row] = numbers[row - 1];
        } else {
            int64_t at = find_origin(table, size, partitions, topics, firsts, row);
            if (table[at] == 0) {
                firsts[found] = lasts[found] = row;
                table[at] = (int32_t)++found;
                numbers[row] = (int32_t)found - 1;
                continue;
            }
            numbers[row] = table[at] - 1;
        }
        if (offsets[row] <= offsets[lasts[numbers[row]]]) {
            found = -row;
            break;
        }
        lasts[numbers[row]] = row;
    }
    free(table);
    return found;
}

/* How far each row is behind the watermark of its partition when it was read, and the watermarks after them. `lag`: how
 * far a watermark stays behind the latest time. `numbers` is NULL where all rows are of the first partition. */
void tg_behind(const struct ArrowArray *column, int64_t count, const int32_t *numbers, int64_t *marks, int64_t lag,
               int64_t *behind)
{
    const int64_t *times = lent_values(column, sizeof(*times));
    for (int64_t row = 0; row < count; row++) {
        int64_t *mark = marks + (numbers == NULL ? 0 : numbers[row]), time = times[row];
        behind[row] = *mark >= time ? (int64_t)((uint64_t)*mark - (uint64_t)time + 1) : 0;
        if (*mark < time - lag)
            *mark = time - lag;
    }
}

int64_t tg_value_bytes(const int32_t *lengths, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += lengths[i] < 0 ? 0 : lengths[i];
    return bytes;
}

void tg_keys(message *const *messages, int64_t count, const uint8_t **keys, int32_t *lengths)
{
    for (int64_t i = 0; i < count; i++) {
        keys[i] = messages[i]->key;
        lengths[i] = messages[i]->key == NULL ? -1 : (int32_t)messages[i]->key_size;
    }
}

/* Milliseconds since 1970. Returns how many messages have none; `known` says which have one. Producers write -1 for none
 * (NO_TIMESTAMP of Kafka's clients), and the client says that it is the time of creation. */
int64_t tg_timestamps(message *const *messages, int64_t count, timestamp_of get, int64_t *times, uint8_t *known)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t kind;
        times[i] = get(messages[i], &kind);
        known[i] = kind != NO_TIMESTAMP && times[i] >= 0;
        missing += !known[i];
    }
    return missing;
}

void tg_destroy(message *const *messages, int64_t count, destroy_message destroy)
{
    for (int64_t i = 0; i < count; i++)
        destroy(messages[i]);
}

/* One number with `ABI` in `library.py`. */
int32_t tg_abi(void)
{
    return 10;
}
