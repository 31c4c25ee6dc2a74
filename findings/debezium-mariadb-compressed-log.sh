#!/usr/bin/env bash
# Debezium 3.5.0 (io.debezium:debezium-connector-mariadb) with a MariaDB 10.11 that has
# log_bin_compress=ON: changes of rows of 256 bytes and more (log_bin_compress_min_len) never arrive.
# Nothing is reported, and the changes of smaller rows that follow arrive as ever.
#
# MariaDB logs the larger rows as events of other types (WRITE_ROWS_COMPRESSED_EVENT_V1, …), which
# the reader of the log passes over. A snapshot has all rows. MySQL's binlog_transaction_compression
# is another mechanism.
#
# Remedy: SET GLOBAL log_bin_compress=OFF, then a new snapshot. Seen 2026-11-29 with Java 17 and
# MariaDB 10.11.19 of Debian 12. Needs java, mvn and apt-get; installs nothing. Runs without Weir.
set -euo pipefail
dir=$(mktemp -d)
chmod 755 "$dir"
stop() {
	[ ! -f "$dir/pid" ] || kill "$(cat "$dir/pid")" 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap stop EXIT
cd "$dir"
mkdir deb db
(cd deb && apt-get download -q mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common libaio1 liburing2 libsnappy1v5 liblzo2-2 >/dev/null 2>&1)
for package in deb/*.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
base=$dir/root/usr
port=$((20000 + RANDOM % 10000))
server=(--no-defaults "--basedir=$base" "--datadir=$dir/db" "--lc-messages-dir=$base/share/mysql" --user="$(id -un)")
"$base/bin/mariadb-install-db" "${server[@]}" --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
"$base/sbin/mariadbd" "${server[@]}" --port=$port --bind-address=127.0.0.1 --socket="$dir/socket" --log-bin=b --server-id=7 --binlog-format=ROW --log-bin-compress=ON >server.log 2>&1 &
echo $! >pid
sql() { "$base/bin/mariadb" --no-defaults -S "$dir/socket" -u root -N -e "$1"; }
for _ in $(seq 60); do sql "select 1" >/dev/null 2>&1 && break || sleep 0.5; done
sql "create user d@'127.0.0.1' identified by 'd'; grant all on *.* to d@'127.0.0.1'; create user d@localhost identified by 'd'; grant all on *.* to d@localhost;
create database shop; use shop; create table a (id int primary key, note text, n int); insert into a values (1, 'small', 0), (2, repeat('x', 400), 0)"
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.5.0.Final</version></dependency>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-mariadb</artifactId><version>3.5.0.Final</version></dependency>
</dependencies></project>
POM
cat >Changes.java <<'JAVA'
import com.fasterxml.jackson.databind.*;
import io.debezium.engine.*;
import io.debezium.engine.format.Json;
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;

public class Changes {
	public static void main(String[] args) throws Exception {
		Properties p = new Properties();
		for (String pair : ("name=n;topic.prefix=n;connector.class=io.debezium.connector.mariadb.MariaDbConnector;database.hostname=127.0.0.1;database.user=d;database.password=d;database.server.id=99;"
			+ "table.include.list=shop.a;include.schema.changes=false;"
			+ "offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore;schema.history.internal=io.debezium.relational.history.MemorySchemaHistory;database.port=" + args[0]).split(";"))
			p.setProperty(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
		BlockingQueue<String> seen = new LinkedBlockingQueue<>();
		CountDownLatch read = new CountDownLatch(2);
		DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(p).notifying(e -> {
			try {
				JsonNode v = new ObjectMapper().readTree(e.value()).path("payload");
				seen.add(v.path("op").asText() + " " + v.path("after").path("id") + " n=" + v.path("after").path("n"));
				read.countDown();
			} catch (Exception x) { throw new RuntimeException(x); }
		}).build();
		ExecutorService runner = Executors.newSingleThreadExecutor();
		runner.execute(engine);
		if (!read.await(60, TimeUnit.SECONDS)) throw new Exception("no snapshot");
		try (Connection c = DriverManager.getConnection("jdbc:mariadb://127.0.0.1:" + args[0] + "/shop", "d", "d")) {
			for (String statement : new String[] {"UPDATE a SET n = 1 WHERE id = 1", "UPDATE a SET n = 1 WHERE id = 2", "INSERT INTO a VALUES (3, repeat('x', 400), 1)", "UPDATE a SET n = 2 WHERE id = 1"})
				c.createStatement().execute(statement);
		}
		List<String> all = new ArrayList<>();
		for (String one = ""; !one.equals("u 1 n=2");) {
			if ((one = seen.poll(60, TimeUnit.SECONDS)) == null) throw new Exception("no last change");
			all.add(one);
		}
		System.out.println(String.join(", ", all));
		engine.close();
		System.exit(0);
	}
}
JAVA
mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >/dev/null
seen=$(java -Xmx256m -XX:TieredStopAtLevel=1 -cp "$(cat classpath)" Changes.java $port 2>engine.log)
echo "of two rows in a snapshot and four changes: $seen"
[ "$seen" = "r 1 n=0, r 2 n=0, u 1 n=1, u 1 n=2" ]
