using System.Globalization;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The engine on a real disk, with everything on at once, beside a model: see <see cref="DifferentialRun"/>. KV_SEED repeats a run, as far as threads and the
/// disk let it. KV_OPERATIONS is their number, and KV_DIRECTORY a directory on a file system that may be filled; tests/nightly/differential sets both.
/// </summary>
public sealed class DifferentialTests(ITestOutputHelper output)
{
    private const int OperationsOfAnOrdinaryRun = 10_000;

    [Fact]
    public async Task Store_WithEverythingOn_AgreesWithTheModel()
    {
        var random = Seeds.Next(output);
        var given = Environment.GetEnvironmentVariable("KV_DIRECTORY");
        using var beside = new TemporaryDirectory();
        var operations = OperationsOfAnOrdinaryRun;
        if (Environment.GetEnvironmentVariable("KV_OPERATIONS") is { Length: > 0 } text)
            operations = int.Parse(text, CultureInfo.InvariantCulture);
        var fillsDisk = !string.IsNullOrEmpty(given);
        await using var run = new DifferentialRun(fillsDisk ? given! : beside.Path, beside.Path, random, fillsDisk);
        try
        {
            await run.RunAsync(operations);
        }
        finally
        {
            output.WriteLine(run.Summary);
        }
    }
}
