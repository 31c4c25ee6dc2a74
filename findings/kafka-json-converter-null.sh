#!/usr/bin/env bash
# Kafka Connect's JsonConverter 4.3.1 (org.apache.kafka:connect-json): in its default settings it
# writes a null of an optional field with a default as that default.
#
# A column that an application sets to NULL so arrives as the column's DEFAULT, with schemas and
# without, and a reader cannot tell. replace.null.with.default=false writes null.
# Seen on 2026-11-28 with Java 17, also from Debezium 3.6.3 in Connect. Needs java and mvn; runs
# without Weir.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency></dependencies></project>
POM
cat >Null.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.json.JsonConverter;

public class Null {
	static String write(String replace) {
		Schema schema = SchemaBuilder.struct().field("n", SchemaBuilder.int32().optional().defaultValue(5).build()).build();
		try (JsonConverter converter = new JsonConverter()) {
			converter.configure(replace == null ? Map.of("schemas.enable", "false") : Map.of("schemas.enable", "false", "replace.null.with.default", replace), false);
			return new String(converter.fromConnectData("t", schema, new Struct(schema).put("n", null)));
		}
	}

	public static void main(String[] args) {
		System.out.println(write(null) + " " + write("false"));
	}
}
JAVA
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >/dev/null
seen=$(java -cp "$(cat classpath)" Null.java 2>/dev/null)
echo "n: null by default, and with replace.null.with.default=false: $seen"
[ "$seen" = '{"n":5} {"n":null}' ]
