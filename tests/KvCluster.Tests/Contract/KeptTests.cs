using System.Formats.Tar;
using System.Globalization;
using System.IO.Compression;
using System.Security.Cryptography;
using System.Text.Json.Nodes;
using Google.Protobuf;
using KvCluster.Client;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Runtime;
using KvCluster.Processes;
using KvCluster.ServiceDefaults.Admin;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Contract;

/// <summary>
/// What earlier releases wrote, in a folder of <c>Kept</c> each: the data directory of a node and of its coordinator, the entries in it, and the coordinator's
/// records. Every later version opens them. With KV_KEEP=1 the folder of this release is written anew, which is done once, before it is published.
/// </summary>
public sealed class KeptTests
{
    private const string Release = "1";
    private const string Archive = "cluster.tar.gz";
    private const string Entries = "entries.txt";
    private const string Records = "records.txt";

    private static readonly string Kept = Path.Combine(Tools.Repository(), "tests", "KvCluster.Tests", "Kept");

    private static string[] Folders => [.. Directory.GetDirectories(Kept).Order(StringComparer.Ordinal)];

    [Fact]
    public async Task Kept_OfThisRelease_IsWrittenWhenAskedFor()
    {
        if (Environment.GetEnvironmentVariable("KV_KEEP") != "1")
            return;
        using var made = new TemporaryDirectory();
        List<string> entries;
        List<string> records;
        await using (var coordinator = OpenCoordinator(made.Path))
        {
            await ClusterInit.CreateAsync(coordinator, "local", new NewCluster([new(1)], 1, ["m"u8.ToArray()]), CancellationToken.None);
            await using var host = await StartAsync(made.Path, coordinator);
            await using (var client = ClientOf(host))
            {
                await FillAsync(client, 0);
                await client.Admin.CheckpointAsync();
                // These are in the journals only.
                await FillAsync(client, 500);
                await client.Admin.PlaceAsync(paused: false);
                entries = await ReadAsync(client);
                records = [.. (await coordinator.ListAsync("/", CancellationToken.None)).Entries.Select(static entry => $"{entry.Key} {entry.Value}")];
            }
        }
        var folder = Path.Combine(Kept, Release);
        Directory.CreateDirectory(folder);
        await File.WriteAllLinesAsync(Path.Combine(folder, Entries), entries);
        await File.WriteAllLinesAsync(Path.Combine(folder, Records), records);
        await using var file = File.Create(Path.Combine(folder, Archive));
        await using var compressed = new GZipStream(file, CompressionLevel.SmallestSize);
        await TarFile.CreateFromDirectoryAsync(made.Path, compressed, includeBaseDirectory: false);
    }

    [Fact]
    public async Task Kept_OfEveryRelease_IsOpenedWithAllItsEntries()
    {
        foreach (var folder in Folders)
        {
            using var copy = new TemporaryDirectory();
            await ExtractAsync(folder, copy.Path);
            await using var coordinator = OpenCoordinator(copy.Path);
            await using var host = await StartAsync(copy.Path, coordinator);
            await using var client = ClientOf(host);
            Assert.Equal(await File.ReadAllLinesAsync(Path.Combine(folder, Entries)), await ReadAsync(client));
            await client.PutAsync("a new key", "a new value");
            Assert.True((await client.GetAsync("a new key")).Found);
        }
    }

    /// <summary>What an operator does after the upgrade from each of them.</summary>
    [Fact]
    public async Task Kept_OfEveryRelease_IsRaisedToTheLevelsOfThisOne_AndKeepsItsEntries()
    {
        foreach (var folder in Folders)
        {
            using var copy = new TemporaryDirectory();
            await ExtractAsync(folder, copy.Path);
            var highest = ProgramLevels.Current.Format.Max;
            await using var coordinator = OpenCoordinator(copy.Path);
            await using (var host = await StartAsync(copy.Path, coordinator))
            await using (var client = ClientOf(host))
            {
                await Eventually.TrueAsync(
                    async () => (await client.Admin.GetLevelsAsync()).Nodes.Single().FormatLevels?.Max == highest, "the node is registered with this version");
                Assert.Equal(highest, (await client.Admin.RaiseLevelsAsync()).Format);
            }
            await using var again = await StartAsync(copy.Path, coordinator);
            await using var reader = ClientOf(again);
            Assert.Equal(await File.ReadAllLinesAsync(Path.Combine(folder, Entries)), await ReadAsync(reader));
            await reader.PutAsync("a new key", "a new value");
            Assert.True((await reader.GetAsync("a new key")).Found);
            await Eventually.TrueAsync(
                async () => (await reader.Admin.GetLevelsAsync()).Nodes.Single().FormatInUse == highest, "the node uses the raised level");
        }
    }

    [Fact]
    public async Task KeptRecords_OfEveryRelease_AreReadWithEveryField()
    {
        foreach (var folder in Folders)
        {
            foreach (var line in await File.ReadAllLinesAsync(Path.Combine(folder, Records)))
            {
                var (key, text) = (line[..line.IndexOf(' ', StringComparison.Ordinal)], line[(line.IndexOf(' ', StringComparison.Ordinal) + 1)..]);
                var written = JsonNode.Parse(RecordText.Format(Read(key, text)))!.AsObject();
                foreach (var (name, value) in JsonNode.Parse(text)!.AsObject())
                    Assert.True(JsonNode.DeepEquals(value, written[name]), $"{Path.GetFileName(folder)}: {key}: the field {name} was read as {written[name]}");
            }
        }
    }

    private static async Task ExtractAsync(string folder, string to)
    {
        await using var file = File.OpenRead(Path.Combine(folder, Archive));
        await using var compressed = new GZipStream(file, CompressionMode.Decompress);
        await TarFile.ExtractToDirectoryAsync(compressed, to, overwriteFiles: true);
    }

    private static IMessage Read(string key, string text) => key.Split('/') switch
    {
        [.., "cluster"] => RecordText.Parse<ClusterRecord>(text),
        [.., "placement"] => RecordText.Parse<PlacementRecord>(text),
        [.., "controller"] => RecordText.Parse<ControllerRecord>(text),
        [.., "starts"] => RecordText.Parse<NodeStarts>(text),
        [.., "nodes", _] => RecordText.Parse<NodeRecord>(text),
        [.., "shards", _] => RecordText.Parse<ShardRecord>(text),
        _ => throw new InvalidOperationException($"There is no record at {key}."),
    };

    private static EmbeddedCoordinator OpenCoordinator(string folder) => EmbeddedCoordinator.Open(Path.Combine(folder, "coordinator"), TimeProvider.System);

    private static Task<NodeHost> StartAsync(string folder, ICoordinator coordinator) => NodeHost.StartAsync(
        new NodeOptions
        {
            Node = new(1), DataDirectory = Path.Combine(folder, "node-1"), Listen = "http://127.0.0.1:0",
            StopTimeMax = Eventually.Limit, DrainTimeMax = Eventually.Limit
        },
        coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);

    private static KvClient ClientOf(NodeHost host) => new(new KvClientOptions { Endpoints = [host.Address], Timeout = Eventually.Limit });

    // Keys of both shards; empty, small and large values, changes and deletes.
    private static async Task FillAsync(KvClient client, int first)
    {
        for (var number = first; number < first + 400; number++)
        {
            var key = string.Create(CultureInfo.InvariantCulture, $"{(number % 2 == 0 ? "even" : "odd")}/{number:0000}");
            await client.PutAsync(key, new string('v', number % 97 == 0 ? 100_000 : number % 50));
            if (number % 10 == 0)
                await client.PutAsync(key, $"changed {number}");
            if (number % 15 == 0)
                await client.DeleteAsync(key);
        }
    }

    private static async Task<List<string>> ReadAsync(KvClient client)
    {
        var lines = new List<string>();
        await foreach (var entry in client.ScanAsync(new KvScan()))
            lines.Add($"{Convert.ToHexStringLower(entry.Key.Span)} {Convert.ToHexStringLower(SHA256.HashData(entry.Value.Span))} {entry.Etag}");
        return lines;
    }
}
