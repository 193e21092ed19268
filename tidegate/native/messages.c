/* What librdkafka has consumed, as columns: no object for each record.
 *
 * The messages stay librdkafka's until `tg_destroy`; addresses in columns are of its memory, and valid as long. Its
 * functions come as pointers, so this needs neither its headers nor one release of it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* rd_kafka_message_t: public, and unchanged since 0.9. `library.py` tries it before it is relied on. */
typedef struct {
    int32_t err;
    void *topic;
    int32_t partition;
    uint8_t *value;
    size_t value_size;
    uint8_t *key;
    size_t key_size;
    int64_t offset;
    void *opaque;
} message;

typedef struct {
    int64_t records;
    int64_t events;
    int64_t value_bytes;
} scanned;

typedef int64_t (*timestamp_of)(const message *, int32_t *);
typedef int32_t (*headers_of)(const message *, void **);
typedef size_t (*count_of)(const void *);
typedef int32_t (*header_at)(const void *, size_t, const char **, const void **, size_t *);
typedef void (*destroy_message)(message *);

enum { NO_ERROR = 0, NO_TIMESTAMP = 0 };

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

/* The last row of each run of records of one partition. Returns the number of runs. */
int64_t tg_last_rows(const int32_t *partitions, const void *const *topics, int64_t count, int64_t *rows)
{
    int64_t runs = 0;
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || partitions[i + 1] != partitions[i] || topics[i + 1] != topics[i])
            rows[runs++] = i;
    return runs;
}

void tg_keys(message *const *messages, int64_t count, const uint8_t **keys, int32_t *lengths)
{
    for (int64_t i = 0; i < count; i++) {
        keys[i] = messages[i]->key;
        lengths[i] = messages[i]->key == NULL ? -1 : (int32_t)messages[i]->key_size;
    }
}

/* Milliseconds since 1970. Returns how many messages have none; `known` says which have one. */
int64_t tg_timestamps(message *const *messages, int64_t count, timestamp_of get, int64_t *times, uint8_t *known)
{
    int64_t missing = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t kind;
        times[i] = get(messages[i], &kind);
        known[i] = kind != NO_TIMESTAMP;
        missing += !known[i];
    }
    return missing;
}

/* Whether a message lies there as format 2 writes it, and has no headers. Asking librdkafka would allocate, to find none.
 *
 * Format 2 has the length of the value before it as a variable-length number, and the number of headers after it. Older
 * formats have the length in four bytes with the highest first, which are those bytes for no length but zero. */
static bool has_no_headers(const message *one)
{
    if (one->value == NULL || one->value_size == 0)
        return false;
    uint8_t length[10];
    int size = 0;
    for (uint64_t rest = (uint64_t)one->value_size << 1;; rest >>= 7) {
        length[size++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        if (rest <= 0x7f)
            break;
    }
    return memcmp(one->value - size, length, (size_t)size) == 0 && one->value[one->value_size] == 0;
}

/* Headers of each message, found once: `lists` has librdkafka's own, NULL where there are none. Returns their number. */
int64_t tg_header_lists(message *const *messages, int64_t count, headers_of get, count_of count_headers,
                        const void **lists, int64_t *counts)
{
    int64_t all = 0;
    for (int64_t i = 0; i < count; i++) {
        void *list = NULL;
        bool none = has_no_headers(messages[i]) || get(messages[i], &list) != NO_ERROR;
        lists[i] = none ? NULL : list;
        counts[i] = lists[i] == NULL ? 0 : (int64_t)count_headers(list);
        all += counts[i];
    }
    return all;
}

/* Names and values of all headers after each other. */
void tg_headers(const void *const *lists, const int64_t *counts, int64_t count, header_at get, const char **names,
                int32_t *name_lengths, const void **values, int32_t *value_lengths)
{
    int64_t place = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < counts[i]; j++, place++) {
            size_t size = 0;
            get(lists[i], (size_t)j, &names[place], &values[place], &size);
            name_lengths[place] = (int32_t)strlen(names[place]);
            value_lengths[place] = values[place] == NULL ? -1 : (int32_t)size;
        }
}

void tg_destroy(message *const *messages, int64_t count, destroy_message destroy)
{
    for (int64_t i = 0; i < count; i++)
        destroy(messages[i]);
}

/* One number with `ABI` in `library.py`. */
int32_t tg_abi(void)
{
    return 2;
}
