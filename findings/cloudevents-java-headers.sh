#!/usr/bin/env bash
# CloudEvents SDK for Java 4.0.1 (io.cloudevents:cloudevents-http-basic): binary mode does not
# percent-encode attributes.
#
# The HTTP protocol binding 1.0.2, section 3.1.3.2, encodes characters beyond ASCII, quotes, spaces
# and the percent sign. The SDK hands the attribute's text to the HTTP client as it is, so a receiver
# that decodes reads a literal "%41" as "A".
# Seen on 2026-11-28 with Java 17. Needs java and mvn; runs without Weir.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies><dependency><groupId>io.cloudevents</groupId><artifactId>cloudevents-http-basic</artifactId><version>4.0.1</version></dependency></dependencies></project>
POM
cat >Headers.java <<'JAVA'
import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.http.HttpMessageFactory;
import java.net.URI;

public class Headers {
	public static void main(String[] args) {
		CloudEvent event = CloudEventBuilder.v1().withId("7").withSource(URI.create("/plant/3")).withType("reading")
			.withSubject("Zo\u00eb %41").withData("application/json", "{}".getBytes()).build();
		HttpMessageFactory.createWriter((name, value) -> {
			if (name.equals("ce-subject")) System.out.println(value.equals("Zo\u00eb %41") ? "not encoded" : "other: " + value);
		}, body -> {}).writeBinary(event);
	}
}
JAVA
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >/dev/null
seen=$(java -cp "$(cat classpath)" Headers.java)
echo "ce-subject of \"Zoë %41\": $seen"
[ "$seen" = "not encoded" ]
