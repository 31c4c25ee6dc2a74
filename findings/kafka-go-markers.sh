#!/usr/bin/env bash
# kafka-go 0.4.51 (github.com/segmentio/kafka-go) returns the markers of transactions as messages,
# with both isolation levels: a key of 4 bytes, a value of 6, no headers. Other clients show none.
#
# Remedy: skip messages without the headers that the producer sets; or another client. Seen
# 2026-11-29 with Kafka 4.3.1. Needs go, java and mvn; runs without Weir.
set -euo pipefail
dir=$(mktemp -d)
stop() {
	[ ! -f "$dir/pid" ] || kill -9 "$(cat "$dir/pid")" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap stop EXIT
cd "$dir"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
POM
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >/dev/null
port=$((20000 + RANDOM % 10000))
cat >server.properties <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
log.dirs=$dir/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
CONF
java -cp "$(cat classpath)" kafka.tools.StorageTool format --standalone -t Finding00000000000000 -c server.properties >format.log 2>&1
java -Xmx256m -XX:TieredStopAtLevel=1 -cp "$(cat classpath)" kafka.Kafka server.properties >server.log 2>&1 &
echo $! >pid
disown
cat >Write.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

public class Write {
	public static void main(String[] args) {
		try (var p = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", args[0], "transactional.id", "t"), new StringSerializer(), new StringSerializer())) {
			p.initTransactions();
			p.beginTransaction();
			p.send(new ProducerRecord<>("t", "key", "value"));
			p.commitTransaction();
		}
	}
}
JAVA
java -cp "$(cat classpath)" Write.java "127.0.0.1:$port" >write.log 2>&1
cat >go.mod <<'MOD'
module finding

go 1.24

require github.com/segmentio/kafka-go v0.4.51
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	for _, level := range []kafka.IsolationLevel{kafka.ReadUncommitted, kafka.ReadCommitted} {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: os.Args[1:], Topic: "t", IsolationLevel: level})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		for range 2 {
			m, err := r.ReadMessage(ctx)
			fmt.Printf("%d %q %d %v;", m.Offset, m.Key, len(m.Value), err)
		}
		cancel()
		r.Close()
	}
}
GO
export GOFLAGS=-mod=mod
go mod tidy 2>tidy.log
seen=$(go run . "127.0.0.1:$port")
echo "of one record in a transaction: $seen"
[ "$seen" = '0 "key" 5 <nil>;1 "\x00\x00\x00\x01" 6 <nil>;0 "key" 5 <nil>;1 "\x00\x00\x00\x01" 6 <nil>;' ]
