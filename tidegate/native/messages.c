/* What librdkafka has consumed, as columns: no object for each record.
 *
 * The messages stay librdkafka's until `tg_destroy`; addresses in columns are of its memory, and valid as long. Its
 * functions come as pointers, so this needs neither its headers nor one release of it.
 */
#include "message.h"

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

/* The last row of each run of records of one partition. Returns the number of runs; where offsets of one do not ascend,
 * minus the row that is not after the one before it. */
int64_t tg_run_ends(const int32_t *partitions, const void *const *topics, int64_t count, const int64_t *offsets,
                    int64_t *rows)
{
    int64_t runs = 0;
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || partitions[i + 1] != partitions[i] || topics[i + 1] != topics[i])
            rows[runs++] = i;
        else if (offsets[i + 1] <= offsets[i])
            return -(i + 1);
    return runs;
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
    return 9;
}
