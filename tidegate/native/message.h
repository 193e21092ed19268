/* A message as librdkafka shows it. */
#ifndef TIDEGATE_MESSAGE_H
#define TIDEGATE_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

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

enum { NO_ERROR = 0 };

#endif
