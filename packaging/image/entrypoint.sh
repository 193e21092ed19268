#!/bin/sh
# What a container of the image runs: `executor` is Spark's word for an executor pod, everything else is a command of
# tidegate. Spark on Kubernetes says by variables what an executor needs.
set -eu
if [ "${1:-}" != executor ]; then
  exec tidegate "$@"
fi

: "${SPARK_HOME:?}" "${SPARK_DRIVER_URL:?}" "${SPARK_EXECUTOR_ID:?}" "${SPARK_EXECUTOR_POD_IP:?}"
set --
# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 ...: one option each, in the order of their numbers.
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
  eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
  number=$((number + 1))
done
conf=${SPARK_CONF_DIR:-$SPARK_HOME/conf}
java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
exec "$java" "$@" \
  "-Xms${SPARK_EXECUTOR_MEMORY:?}" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "$conf:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "${SPARK_EXECUTOR_CORES:?}" \
  --app-id "${SPARK_APPLICATION_ID:?}" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" \
  --podName "${SPARK_EXECUTOR_POD_NAME:-}"
