using System.Globalization;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The engine on a real disk, with everything on at once, beside a model: see <see cref="DifferentialRun"/>. KV_SEED repeats a run, as far as threads and the disk let it. KV_OPERATIONS is
/// their number, and KV_DIRECTORY a directory on a file system that may be filled; tests/nightly/differential sets both.
/// </summary>
public sealed class DifferentialTests(ITestOutputHelper output)
{
    private const int OperationsOfAnOrdinaryRun = 20_000;

    [Fact]
    public async Task Store_WithEverythingOn_AgreesWithTheModel()
    {
        var random = Seeds.Next(output);
        var given = Environment.GetEnvironmentVariable("KV_DIRECTORY");
        using var beside = new TemporaryDirectory();
        var operations = Environment.GetEnvironmentVariable("KV_OPERATIONS") is { Length: > 0 } text ? int.Parse(text, CultureInfo.InvariantCulture) : OperationsOfAnOrdinaryRun;
        await using var run = new DifferentialRun(string.IsNullOrEmpty(given) ? beside.Path : given, beside.Path, random, fillsDisk: !string.IsNullOrEmpty(given));
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
