using System.Runtime.InteropServices;
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The C library's heap. Measures the process, so other tests must not run beside this one.</summary>
[Collection(AloneCollection.Name)]
public sealed class NativeHeapTests
{
    // An idle node kept what its start had freed.
    [Fact]
    public void Trim_AfterMuchWasFreedBetweenBlocksInUse_ReturnsIt()
    {
        const int BlockBytes = 16 << 10;
        const int Blocks = 8_192;
        const int UsedEvery = 64;
        if (!OperatingSystem.IsLinux())
            return;
        var blocks = new nint[Blocks];
        foreach (ref var block in blocks.AsSpan())
        {
            block = Marshal.AllocHGlobal(BlockBytes);
            for (var at = 0; at < BlockBytes; at += 4_096)
                Marshal.WriteByte(block, at, 1);
        }
        for (var index = 0; index < Blocks; index++)
        {
            if (index % UsedEvery != 0)
                Marshal.FreeHGlobal(blocks[index]);
        }
        var before = Environment.WorkingSet;
        var isKnown = NativeHeap.Trim();
        var after = Environment.WorkingSet;
        for (var index = 0; index < Blocks; index += UsedEvery)
            Marshal.FreeHGlobal(blocks[index]);
        // Elsewhere than with glibc there is no such call.
        Assert.True(!isKnown || before - after > Blocks * BlockBytes / 2, $"{before >> 20} MiB before, {after >> 20} after.");
    }
}
