using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Storage.DataFile;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>
/// With KV_DELTAS=BYTES/N in the environment, all stores of these tests that say nothing else hold changed leaves as deltas of at most so many bytes, and each
/// Nth leaf whole. So every test of the engine can run over deltas beside whole leaves, and with KV_DELTAS=0 over whole leaves alone.
/// </summary>
internal static class DeltaSwitch
{
    private static int _leaves;

    [ModuleInitializer]
    internal static void Apply()
    {
        if (Environment.GetEnvironmentVariable("KV_DELTAS")?.Split('/') is not [var bytes, .. var rest])
            return;
        PageStoreOptions.DeltaBytesMaxDefault = int.Parse(bytes, CultureInfo.InvariantCulture);
        if (rest is not [var every])
            return;
        var leaves = int.Parse(every, CultureInfo.InvariantCulture);
        PageStoreOptions.StaysWholeDefault = () => Interlocked.Increment(ref _leaves) % leaves == 0;
    }
}
