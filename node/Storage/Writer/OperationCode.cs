namespace KvCluster.Storage.Writer;

/// <summary>First byte of an operation in a payload (FORMAT.md, "Operations"). 3 to 6 are reserved for sets, sessions and results.</summary>
internal enum OperationCode : byte
{
    /// <summary>Not an operation.</summary>
    None = 0,

    /// <summary>Sets a key's value.</summary>
    Put = 1,

    /// <summary>Removes a key, which need not be there.</summary>
    Delete = 2,
}
