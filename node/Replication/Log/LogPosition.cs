namespace KvCluster.Replication.Log;

/// <summary>Names one record of one history, or with the default value the point before all records.</summary>
internal readonly record struct LogPosition(Etag Etag, uint Checksum)
{
    public override string ToString() => $"{Etag.Epoch}.{Etag.Change}";
}
