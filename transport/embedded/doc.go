// Package embedded is the Kafka-compatible broker that runs inside the process
// when no cluster is configured: kfake, one broker, loopback only, data on
// disk.
//
// What is acknowledged is on disk when SyncWrites is set, and survives kill -9
// either way, because the operating system has it; without SyncWrites a power
// failure can take the last records. Topic identities, offsets, consumer
// groups and their commits survive a restart too.
//
// While the disk has less than a reserve free, no records are taken: producers
// wait and go on when there is room again; reading goes on meanwhile.
//
// Limits. One process, one broker, no replication. An fsync that fails is not
// noticed. A quota is noticed in the middle of a write only, which fails then;
// the free space is known on Linux, macOS and FreeBSD. The folder is locked
// against a second process here, since kfake itself takes no lock. Old segments
// go by retention only, checked once a minute; a partition's last segment goes
// when all of it is old.
package embedded
