using KvCluster.Storage.Pages;

namespace KvCluster.Node.Api;

/// <summary>A snapshot that is new enough for a read, and what its answer says of it; or why there is none.</summary>
/// <param name="Snapshot">Closed by who asked for it, if there is no refusal.</param>
/// <param name="AgeUs">Of a stale read, if known: for how long it may be out of date.</param>
/// <param name="Refusal">Null: it is open.</param>
internal readonly record struct OpenedRead(ReadSnapshot Snapshot, ulong? AgeUs, Refusal? Refusal);
