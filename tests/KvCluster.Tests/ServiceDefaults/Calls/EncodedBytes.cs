using KvCluster.Wire;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>A message that is encoded already, and counts how often it was returned.</summary>
internal sealed class EncodedBytes : IEncodedMessage
{
    public EncodedBytes(int count)
    {
        var bytes = new byte[count];
        new Random(1).NextBytes(bytes);
        Memory = bytes;
    }

    public ReadOnlyMemory<byte> Memory { get; }

    public int Returns { get; private set; }

    public void Return() => Returns++;
}
