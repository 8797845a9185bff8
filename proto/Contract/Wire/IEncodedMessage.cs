namespace KvCluster.Wire;

/// <summary>
/// A message that is in memory as it goes over the wire. A server does not serialize a large one. It takes the bytes piece by piece as its caller reads, and
/// returns the message after the last one, or when the caller is gone.
/// </summary>
internal interface IEncodedMessage
{
    /// <summary>The bytes, which stay as they are until <see cref="Return"/>.</summary>
    ReadOnlyMemory<byte> Memory { get; }

    /// <summary>Called once, by whoever has read the bytes or does not need them.</summary>
    void Return();
}
