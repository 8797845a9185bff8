using KvCluster.Client;
using KvCluster.Examples;

namespace KvCluster.Tests.Node;

/// <summary>The example of a faceted browser, driven by its prompt over a few packages.</summary>
public sealed class FacetBrowserTests
{
    [Fact]
    public async Task Selection_NarrowsAndWidens_WithCounts()
    {
        using var directory = new TemporaryDirectory();
        var (packages, tags) = (Path.Combine(directory.Path, "packages"), Path.Combine(directory.Path, "tags"));
        await File.WriteAllLinesAsync(
            packages,
            ["packages/games/chess\tplays chess", .. Enumerable.Range(0, 12).Select(static number => $"packages/libs/lib{number:d2}\tlibrary {number}")]);
        await File.WriteAllLinesAsync(tags, ["section/games\tchess", "tag/role::program\tchess", "tag/role::program\tlib07", .. Enumerable.Range(0, 12)
            .Select(static number => $"tag/devel::library\tlib{number:d2}")]);
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var catalog = new Catalog(client);
        using var output = new StringWriter();
        await catalog.LoadAsync(packages, tags, output);
        using var input = new StringReader("+tag/devel::library\nn\n+tag/role::program\n+tag/none\n-tag/devel::library\nchess\nnothing\n-tag/none\nq\nchess\n");
        await new Browser(catalog, input, output).RunAsync();
        Assert.Equal(
            [
                "13 packages and 3 tags loaded",
                "+TAG narrows, -TAG widens, a name describes a package, n shows more names, q quits",
                "13 packages",
                "  section: games 1",
                "  tag/devel: library 12",
                "  tag/role: program 2",
                "chess lib00 lib01 lib02 lib03 lib04 lib05 lib06 lib07 lib08 ...",
                "12 packages with tag/devel::library",
                "  tag/role: program 1",
                "lib00 lib01 lib02 lib03 lib04 lib05 lib06 lib07 lib08 lib09 ...",
                "lib10 lib11",
                "1 packages with tag/devel::library and tag/role::program",
                "lib07",
                "No package has the tag tag/none.",
                "2 packages with tag/role::program",
                "  section: games 1",
                "  tag/devel: library 1",
                "chess lib07",
                "plays chess",
                "There is no package nothing. +TAG narrows, -TAG widens, a name describes a package, n shows more names, q quits.",
                "tag/none is not selected.",
            ],
            output.ToString().Split('\n', StringSplitOptions.RemoveEmptyEntries));
    }
}
