namespace KvCluster.Replication.Log;

/// <summary>Identifies one record of one history. The default value is the position before all records.</summary>
internal readonly record struct LogPosition(Etag Etag, uint Checksum)
{
    public override string ToString() => $"{Etag.Epoch}.{Etag.Change}";
}
