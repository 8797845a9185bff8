namespace KvCluster.Storage.Encoding;

/// <summary>
/// Iterates over the results that <see cref="OperationResults"/> has encoded. The entries of a result are read before the next one; those that are not read are
/// skipped. Malformed bytes cause a <see cref="CorruptStoreException"/>. Any thread.
/// </summary>
internal ref struct OperationResultReader(ReadOnlySpan<byte> results)
{
    private ReadOnlySpan<byte> _rest = results;
    private ulong _entriesLeft;

    /// <summary>The etag of the operation's change; <see cref="Etag.None"/> if it has none.</summary>
    public Etag Etag { get; private set; }

    /// <summary>Whether there was what the operation removes or looks for; null if that means nothing.</summary>
    public bool? Existed { get; private set; }

    /// <summary>The operation's number, if it has one.</summary>
    public long? Number { get; private set; }

    /// <summary>Whether there is more than what was read or removed.</summary>
    public bool More { get; private set; }

    /// <summary>How many entries it has.</summary>
    public ulong EntryCount { get; private set; }

    /// <summary>The key of the current entry.</summary>
    public ReadOnlySpan<byte> EntryKey { get; private set; }

    /// <summary>The value of the current entry.</summary>
    public ReadOnlySpan<byte> EntryValue { get; private set; }

    /// <summary>The etag of the current entry.</summary>
    public Etag EntryEtag { get; private set; }

    /// <summary>Moves to the next result; false at the end.</summary>
    public bool MoveNext()
    {
        while (MoveToEntry())
        {
        }
        if (_rest.IsEmpty)
            return false;
        var flags = (ResultFlags)_rest[0];
        if ((byte)flags >= 2 * (byte)ResultFlags.More)
            throw Malformed();
        _rest = _rest[1..];
        Etag = flags.HasFlag(ResultFlags.Etag) ? new Etag(Read(), Read()) : Etag.None;
        Existed = flags.HasFlag(ResultFlags.IsExistenceKnown) ? flags.HasFlag(ResultFlags.Existed) : null;
        Number = flags.HasFlag(ResultFlags.Number) ? (long)Varint.Unfold(Read()) : null;
        More = flags.HasFlag(ResultFlags.More);
        _entriesLeft = EntryCount = flags.HasFlag(ResultFlags.Entries) ? Read() : 0;
        return true;
    }

    /// <summary>Moves to the next entry of the current result; false at its end.</summary>
    public bool MoveToEntry()
    {
        if (_entriesLeft == 0)
            return false;
        _entriesLeft--;
        EntryKey = ReadBytes();
        EntryValue = ReadBytes();
        EntryEtag = new Etag(Read(), Read());
        return true;
    }

    private static CorruptStoreException Malformed() => new("The results of a request's operations are truncated or malformed.");

    private ulong Read() => Varint.TryRead(ref _rest, out var number) ? number : throw Malformed();

    private ReadOnlySpan<byte> ReadBytes()
    {
        var length = Read();
        if (length > (ulong)_rest.Length)
            throw Malformed();
        var bytes = _rest[..(int)length];
        _rest = _rest[(int)length..];
        return bytes;
    }
}
