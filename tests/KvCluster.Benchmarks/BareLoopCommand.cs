using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.Benchmarks;

/// <summary>
/// The loop beside which scripts judge pauses (beside_loop in tests/acceptance/common.sh): `KvCluster.Benchmarks bare-loop FOLDER` prints for each round when
/// it ended, in milliseconds of Unix time, and how many microseconds it took, until it is killed. Not for people.
/// </summary>
internal static class BareLoopCommand
{
    /// <summary>The first argument.</summary>
    public const string Name = "bare-loop";

    public static int Run(string[] arguments)
    {
        if (arguments is not [Name, var folder])
            return 2;
        using var loop = new BareLoop(folder, static took =>
            Console.WriteLine(string.Create(CultureInfo.InvariantCulture, $"{DateTimeOffset.UtcNow.ToUnixTimeMilliseconds()} {(long)took.TotalMicroseconds}")));
        Thread.Sleep(Timeout.Infinite);
        return 0;
    }
}
