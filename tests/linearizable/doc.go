// Package linearizable checks I3 from outside: decisions for one (service,
// entity) are linearizable across processes.
//
// Real processes run package decide over the real store, on a few hot entities.
// All of them own all partitions of one inbox, as far as each of them knows, so
// ownership moves at every fence and at every takeover, and there is always a
// zombie. Owners decide from memory. Beside the decisions clients call the store as
// deliver does: TakeProgress, SwapProgress, Rows. Connections are cut by the server
// and a process is killed in the middle of its calls.
//
// Half of the entities are rows of a table: their events have places of changes on two timelines,
// and come again, as a PostgreSQL source sends them after a kill.
//
// Every process logs its calls and their answers, with ticks of one
// clock that they share. The parent makes one history of it and asks porcupine
// whether some order of the operations, each between its beginning and its end,
// explains everything that anybody saw: every answer of swaps of progress, every
// row that was read, every refusal and every answer that a watermark gave, and for
// every inbox record whether it passed the dam. A record is one operation, under any
// owner and after any number of tries. A call of a killed process, or one that
// ended with store.Unknown, stays open: it may take effect at any later time or
// never. What ended with store.Retry is left out, for the store says that it wrote
// nothing.
//
// The same test must refuse stores and owners that are broken on purpose, see
// broken. Check services are held to the same within a process, in package checks.
package linearizable
