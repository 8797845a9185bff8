using System.Runtime.InteropServices;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>The number of answers that one caller, or one stream, got. Alone on its cache line, because its caller counts without a lock.</summary>
[StructLayout(LayoutKind.Explicit, Size = 128)]
internal sealed class EchoCount
{
    [FieldOffset(64)]
    private long _calls;

    public long Calls => Volatile.Read(ref _calls);

    public void Add(int count) => Volatile.Write(ref _calls, _calls + count);
}
