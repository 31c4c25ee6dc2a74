#!/usr/bin/env bash
# Kafka Connect's JsonConverter 4.3.1 (org.apache.kafka:connect-json), schemas.enable=false: it
# reads a JSON integer beyond 64 bits as another number, without an error.
#
# A sink connector that reads 12345678901234567890 (unsigned 64 bits, a numeric column) writes
# -6101065172474983726. Such values must be text where a connector reads the topic.
# Seen on 2026-11-28 with Java 17. Needs java and mvn; runs without Weir.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency></dependencies></project>
POM
cat >Big.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

public class Big {
	public static void main(String[] args) {
		try (JsonConverter converter = new JsonConverter()) {
			converter.configure(Map.of("schemas.enable", "false"), false);
			System.out.println(converter.toConnectData("t", "{\"n\":12345678901234567890}".getBytes()).value());
		}
	}
}
JAVA
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >/dev/null
seen=$(java -cp "$(cat classpath)" Big.java 2>/dev/null)
echo "12345678901234567890 is read as: $seen"
[ "$seen" = '{n=-6101065172474983726}' ]
