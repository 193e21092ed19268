"""The commented sample that `tidegate init` writes."""

from __future__ import annotations

from tidegate.formats.registry import DEFAULT, FORMATS

_OTHERS = " or ".join(name for name in FORMATS if name != DEFAULT)

SAMPLE = """\
# A Tidegate pipeline: `tidegate validate FILE`, `tidegate explain FILE`, `tidegate run FILE`.
version: 1
name: orders-per-customer               # in metrics, consumer group, transactional ids and state: never change it

kafka:                                  # librdkafka properties for every source and sink
  bootstrap.servers: ${KAFKA_BOOTSTRAP:127.0.0.1:9092}
  # security.protocol: sasl_ssl
  # sasl.mechanism: SCRAM-SHA-512
  # sasl.username: tidegate
  # sasl.password: ${file:/etc/tidegate/password}    # never shown anywhere

# spark:                                # Spark properties
#   master: local[2]                    # default: local[parallelism]
#   spark.executor.memory: 2g

parallelism: 2                          # slots: Spark tasks that run the whole graph each
# max_parallelism: 128                  # key groups; fixed for the life of the state

checkpoints:
  directory: file:///var/lib/tidegate/orders-per-customer   # shared by daemon and executors
  interval: 1s                          # output becomes visible once per interval
  # mode: exactly-once                  # or at-least-once
  # timeout: 10m
  # transaction_timeout: 15m            # at most the broker's transaction.max.timeout.ms

# restart: {initial: 1s, max: 1m, give_up_after: 20 in 30m}
# http: {host: 127.0.0.1, port: 9095}   # /metrics, /livez, /readyz
# logging: {format: auto, level: info}

sources:
  orders:
    topic: orders                       # or topics: [a, b]
    format: @default@                        # or @others@
    schema: {id: bigint, customer: string, amount: double, at: timestamp}
    start: earliest                     # earliest | latest | 2026-11-01T00:00:00Z | {0: 17, 1: 4}
    # until: latest                     # stop at the ends seen at start
    bad_records: dead-letter            # or fail (the default): stop; or skip: leave them out; all are counted

steps:                                  # expressions are Spark SQL
  - {name: big, from: orders, where: amount >= 100}
  - name: priced
    from: big
    select:
      id: id
      customer: upper(customer)
      net: round(amount / 1.2, 2)
  - name: per_customer                  # running totals; its name is the name of its state
    from: priced
    key: customer
    aggregate: {orders: count(*), net: sum(net)}

sinks:
  priced_orders: {from: priced, topic: orders-priced, key: customer}
  totals: {from: per_customer, topic: orders-per-customer, key: customer}

dead_letters:                           # records that cannot be read, computed or written, with the reason
  topic: orders-dead
  # max_per_minute: 1000                # above it the pipeline stops

tests:                                  # `tidegate test FILE`: no Kafka, no Spark
  - name: small orders are dropped
    given:
      orders:
        - {value: {id: 1, customer: ann, amount: 120, at: 2026-01-01T00:00:00Z}}
        - {value: {id: 2, customer: bo, amount: 5, at: 2026-01-01T00:00:00Z}}
    expect:
      totals: [{key: ANN, value: {customer: ANN, orders: 1, net: 100}}]
""".replace("@default@", DEFAULT).replace("@others@", _OTHERS)
