namespace KvCluster.Cli.Files;

/// <summary>Records of one shard that are written together, all or nothing.</summary>
internal sealed class LoadBatch(uint shard, long firstLine)
{
    public List<TsvRecord> Records { get; } = [];

    public uint Shard { get; } = shard;

    /// <summary>Everything before this line that is not in an older open batch is acknowledged.</summary>
    public long FirstLine { get; } = firstLine;

    /// <summary>Size of keys and values.</summary>
    public long Bytes { get; private set; }

    public void Add(TsvRecord record)
    {
        Records.Add(record);
        Bytes += record.Key.Length + record.Value.Length;
    }
}
