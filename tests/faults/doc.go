// Package faults seeds a hundred faults of targets, servers, disks, clocks, credentials,
// topics, data and configuration, and reads what weir status, validate and doctor say about
// each: its cause in the target's own words, the object, since when, the next try and the
// remedy. It has no code of its own.
package faults
