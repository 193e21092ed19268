#!/bin/sh
# Prints a list of pinned jars for a Kafka release: list.sh 3.9.2 > 3.9.2.txt. Needs Maven; the lists are committed.
set -eu
version=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $version in
  3.*) binding=org.slf4j:slf4j-reload4j:1.7.36 ;;
  *) binding=org.apache.logging.log4j:log4j-slf4j-impl:2.25.4 ;;
esac
dependency() { # group, artifact, version
  printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>' "$@"
}
{
  printf '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>'
  # shellcheck disable=SC2046 # three words
  printf '<dependencies>%s%s</dependencies></project>' \
    "$(dependency org.apache.kafka kafka_2.13 "$version")" "$(dependency $(echo "$binding" | tr : ' '))"
} > "$work/pom.xml"
(cd "$work" && mvn --quiet --batch-mode dependency:copy-dependencies -DincludeScope=runtime \
  -DoutputDirectory=jars -Dmdep.useRepositoryLayout=true >&2)
echo "# Kafka $version as one node: what Maven resolves for org.apache.kafka:kafka_2.13:$version, plus a log binding."
echo "# organisation:name:revision and SHA-256 of the jar. Made by list.sh."
cd "$work/jars"
find . -name '*.jar' | while read -r jar; do
  home=$(dirname "$jar")
  name=$(dirname "$home")
  group=$(dirname "${name#./}" | tr / .)
  echo "$group:$(basename "$name"):$(basename "$home") $(sha256sum "$jar" | cut -d ' ' -f 1)"
done | LC_ALL=C sort
