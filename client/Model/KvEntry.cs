namespace KvCluster.Client;

/// <summary>A key with its value.</summary>
/// <param name="Key">1 to 2,048 bytes.</param>
/// <param name="Value">Up to 8 MiB; empty in scans of keys only.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
public readonly record struct KvEntry(ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value, Etag Etag);
