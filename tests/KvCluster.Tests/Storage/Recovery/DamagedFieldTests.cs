using System.Globalization;
using System.Text.RegularExpressions;
using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// Each field of each structure in node/Storage/FORMAT.md is damaged in turn. The fields are those of its tables, so a new field is covered and a new
/// structure without a place here fails. Damage is found or harmless: what the store serves is all that was acknowledged, or it says what is wrong.
/// </summary>
public sealed partial class DamagedFieldTests : IDisposable
{
    private const string State = StoreBench.DirectoryPath + "/state-00000001";
    private const string Data = State + "/data";
    private const string Control = StoreBench.DirectoryPath + "/control";

    /// <summary>Structures that are not in a replica's directory.</summary>
    private static readonly string[] NotOnDisk = ["Snapshot stream"];

    /// <summary>Every damage of every field takes seconds. Without the switch each field gets one of them, at one or two places of its structure.</summary>
    private static readonly bool TakesAll = Seeds.IsLong;

    private static readonly Dictionary<string, Action<byte[], byte[]>> Damages = new()
    {
        ["first bit flipped"] = (field, _) => field[0] ^= 1,
        ["last bit flipped"] = (field, _) => field[^1] ^= 0x80,
        ["zeroed"] = (field, _) => field.AsSpan().Clear(),
        ["all ones"] = (field, _) => field.AsSpan().Fill(0xFF),
        ["as in an older version"] = (field, older) => older.CopyTo(field, 0),
    };

    private readonly StoreBench _bench = new(options: StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 30, SegmentBytesMin = 64 << 10 });
    private readonly SimulatedDisk _older;
    private readonly SortedDictionary<string, string> _state;
    private readonly SortedDictionary<string, string> _sets;
    private readonly Etag _last;

    public DamagedFieldTests()
    {
        _bench.Open();
        Write(0, 200);
        _bench.Checkpoint();
        _older = _bench.Disk.Copy();
        Write(400, 420);
        _bench.Checkpoint();
        Write(420, 450);
        _bench.Store.Log.WriteControl(_bench.Store.Durable.Control with { Acknowledged = _bench.Store.Durable.Last.Etag, Committed = _bench.Store.Durable.Last.Etag });
        _bench.RunUntilIdle();
        _state = _bench.ReadAllKeys();
        _sets = _bench.ReadAllSets();
        _last = _bench.Store.Log.Last.Etag;
        _bench.Close();
    }

    public void Dispose()
    {
        _bench.Dispose();
        _older.Dispose();
    }

    [Fact]
    public void Field_Damaged_IsFoundOrHarmless()
    {
        var (tried, found, turn) = (0, 0, 0);
        foreach (var (structure, places) in Places())
        {
            foreach (var (offset, length) in Fields(structure))
            {
                turn++;
                foreach (var (place, (path, start)) in places.Index())
                {
                    foreach (var (damage, (name, apply)) in Damages.Index())
                    {
                        if (!TakesAll && ((place + turn) % places.Count > places.Count / 4 || (damage + turn) % Damages.Count > 0))
                            continue;
                        tried++;
                        found += IsFound($"{structure} at {start} of {path}, field at {offset}: {name}", disk => Change(disk, path, start + offset, length, apply), TakesAll || tried % 3 == 0) ? 1 : 0;
                    }
                }
            }
        }
        Assert.True(tried > 80 && found > tried / 4, $"Of {tried} damages, {found} were found.");
    }

    /// <summary>A whole slot, header, record, page or run is missing, torn, as in an older version, or another one of its kind, or the file ends in it.</summary>
    [Fact]
    public void Structure_MissingTornOlderSwappedOrCut_IsFoundOrHarmless()
    {
        var (tried, found) = (0, 0);
        // A body is part of the record that begins with its envelope, and a cell is smaller than what is torn.
        foreach (var (structure, places) in Places().Where(places => places.Structure is not ("Body" or "Cell with a tree")))
        {
            foreach (var (index, (path, start)) in places.Index())
            {
                var file = _bench.Disk.ReadAll(path);
                var length = LengthAt(structure, file.AsSpan((int)start));
                var (otherPath, otherStart) = places[(index + 1) % places.Count];
                var other = _bench.Disk.ReadAll(otherPath).AsSpan((int)otherStart);
                var another = other[..Math.Min(length, LengthAt(structure, other))].ToArray();
                Try("missing", Damages["zeroed"]);
                Try("without its first half", (whole, _) => whole.AsSpan(0, Half()).Clear());
                Try("without its second half", (whole, _) => whole.AsSpan(Half()).Clear());
                Try("as in an older version", Damages["as in an older version"]);
                Try("another one in its place", (whole, _) => another.CopyTo(whole, 0));
                TryCut("the file ends before it", start);
                TryCut("the file ends in it", start + Half());

                // At least the first sector.
                int Half() => Math.Max(512, length / 2 / 512 * 512);
                void Try(string damage, Action<byte[], byte[]> apply) => TryIt(damage, disk => Change(disk, path, start, length, apply));
                void TryCut(string damage, long end) => TryIt(damage, disk => disk.WriteAll(path, file.AsSpan(0, (int)end)));
                void TryIt(string damage, Action<SimulatedDisk> apply)
                {
                    tried++;
                    found += IsFound($"{structure} at {start} of {path}: {damage}", apply, TakesAll || tried % 3 == 0) ? 1 : 0;
                }
            }
        }
        Assert.True(tried > 80 && found > tried / 2, $"Of {tried} damages, {found} were found.");
    }

    [Fact]
    public void File_MissingTruncatedOrExtended_IsFoundOrHarmless()
    {
        var found = 0;
        var paths = StoreBench.PathsOf(_bench.Disk, StoreBench.DirectoryPath).ToList();
        foreach (var path in paths)
        {
            found += IsFound($"{path}: missing", disk => disk.Delete(path)) ? 1 : 0;
            foreach (var length in (int[])[0, 100, 4096, 12_000])
                found += IsFound($"{path}: truncated to {length}", disk => disk.WriteAll(path, disk.ReadAll(path).AsSpan(0, Math.Min(length, disk.ReadAll(path).Length)))) ? 1 : 0;
            found += IsFound($"{path}: extended", disk => disk.WriteAll(path, [.. disk.ReadAll(path), .. new byte[5000]])) ? 1 : 0;
            if (_older.FileExists(path))
                found += IsFound($"{path}: as in an older version", disk => disk.WriteAll(path, _older.ReadAll(path))) ? 1 : 0;
        }
        Assert.True(found > paths.Count, $"Only {found} damages of {paths.Count} files were found.");
    }

    [Fact]
    public void Structures_OfTheFormat_HaveAPlace() =>
        Assert.Equal(Structures().Select(structure => structure.Name).Where(name => !NotOnDisk.Contains(name)).Order(), Places().Select(places => places.Structure).Distinct().Order());

    /// <summary>Where each structure is in the store's files.</summary>
    private List<(string Structure, List<(string Path, long Start)> Places)> Places()
    {
        using var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath);
        var line = replica.Line!;
        var pages = new PagesByType(_bench.Disk.ReadAll(Data));
        foreach (var tree in replica.Newest!.Trees)
            new TreeReading(replica.Space!, pages).Read(tree);
        pages.Reached(new PageRun(replica.Newest.FreeDirectory.Number, 1));
        pages.Reached(new PageRun(replica.Free!.MapPages().First().Reference.Number, 1));
        Assert.Equal(5, pages.First.Count);
        var segments = line.Segments.Select(segment => (line.Place(segment.Header.Number, 0).Path, 0L)).ToList();
        JournalEntry[] records = [line.Entries[0], line.Entries[^2], line.Entries[^1]];
        return
        [
            ("Control file", [(Control, 0), (Control, 4096)]),
            ("Segment header", [segments[0], segments[^1]]),
            ("Envelope", [.. records.Select(record => (line.Place(record.Segment, 0).Path, record.Offset))]),
            ("Body", [.. records.Select(record => (line.Place(record.Segment, 0).Path, record.Offset + RecordEnvelope.Bytes))]),
            ("Meta page", [(Data, 0), (Data, Page.Bytes)]),
            ("Page header", [.. pages.First.Values.Select(page => (Data, page * Page.Bytes))]),
            ("Cell with a tree", [(Data, CellWithATree(replica))]),
        ];
    }

    /// <summary>Where the only large set's cell is in the file; its leaf is the root of the tree.</summary>
    private static unsafe long CellWithATree(StoppedReplica replica)
    {
        var root = replica.Newest!.Trees[(int)TreeId.Sets].Link.Reference;
        var leaf = replica.Space!.Locate(root);
        for (var index = 0; index < Page.Count(leaf); index++)
        {
            if (TreePage.HasTree(leaf, index))
                return (long)root.Value + Page.Slots(leaf)[index];
        }
        throw new InvalidOperationException("There is no large set.");
    }

    /// <summary>
    /// The fields of a structure by the table in the format, and what its text says besides: the roots in a meta page one by one, and the body of a page,
    /// that is bits of the free map, references and checksums of children, cells.
    /// </summary>
    private static IEnumerable<(long Offset, int Length)> Fields(string structure)
    {
        foreach (var field in Structures().Single(found => found.Name == structure).Fields)
            yield return field;
        if (structure == "Body")
            yield return (RecordBody.HeaderBytes, 8);
        if (structure == "Meta page")
        {
            foreach (var part in (int[])[0, 8, 16])
                yield return (128 + part, part == 8 ? 4 : 8);
        }
        else if (structure == "Page header")
        {
            foreach (var offset in (int[])[64, 72, 80, 64 + 256, 4000, Page.Bytes - 16, Page.Bytes - 8])
                yield return (offset, 8);
        }
    }

    /// <summary>The length of what begins here: a block of the control file or journal, a record with its padding, a page or a run of pages.</summary>
    private static unsafe int LengthAt(string structure, ReadOnlySpan<byte> bytes)
    {
        if (structure == "Envelope")
            return RecordEnvelope.TryRead(bytes, out var envelope) ? RecordEnvelope.RecordBytes(envelope.BodyBytes) : throw new InvalidOperationException("There is no record.");
        fixed (byte* page = bytes)
        {
            if (structure == "Page header" && Page.Type(page) == PageType.Overflow)
                return Page.RunPages(Page.ValueLength(page)) * Page.Bytes;
        }
        return structure is "Meta page" or "Page header" ? Page.Bytes : RecordEnvelope.BlockBytes;
    }

    private static IEnumerable<(string Name, List<(long Offset, int Length)> Fields)> Structures()
    {
        string heading = "";
        List<(long, int)>? fields = null;
        foreach (var line in House.House.Read("node/Storage/FORMAT.md").Split('\n'))
        {
            if (line.StartsWith('#'))
                heading = line.TrimStart('#', ' ');
            else if (line.StartsWith("| offset | length |", StringComparison.Ordinal))
                fields = [];
            else if (fields is not null && FieldRow().Match(line) is { Success: true } row)
                fields.Add((int.Parse(row.Groups[1].Value, CultureInfo.InvariantCulture), LengthOf(row.Groups[2].Value)));
            else if (fields is { Count: > 0 } && !line.StartsWith('|'))
            {
                yield return (heading, fields);
                fields = null;
            }
        }
    }

    /// <summary>A length as in "8", "8 + 8" or "16 x 32".</summary>
    private static int LengthOf(string text) => text.Split('+').Sum(part => part.Split('x').Aggregate(1, (product, factor) => product * int.Parse(factor.Trim(), CultureInfo.InvariantCulture)));

    private void Change(SimulatedDisk disk, string path, long offset, int length, Action<byte[], byte[]> damage)
    {
        var bytes = disk.ReadAll(path);
        var field = bytes.AsSpan((int)offset, length).ToArray();
        var older = new byte[length];
        if (_older.FileExists(path) && _older.ReadAll(path) is var before && before.Length >= offset + length)
            before.AsSpan((int)offset, length).CopyTo(older);
        damage(field, older);
        field.CopyTo(bytes, offset);
        disk.WriteAll(path, bytes);
    }

    /// <summary>
    /// Damages a copy of the store. True if the damage is reported, false if everything acknowledged is served. A replica with peers and the check of the tools
    /// may be asked, too.
    /// </summary>
    private bool IsFound(string story, Action<SimulatedDisk> damage, bool asksAll = true)
    {
        using var disk = _bench.Disk.Copy();
        damage(disk);
        var isServed = Serves(disk, story, mayRecover: false);
        if (!asksAll)
            return !isServed;
        using (var other = disk.Copy())
            _ = Serves(other, story, mayRecover: true);
        try
        {
            var report = StoreCheck.Run(disk, StoreBench.DirectoryPath);
            Assert.True(isServed || report.IsDamaged, $"{story}: the store does not serve everything, but the check finds no damage.");
        }
        catch (Exception found) when (found is FormatVersionException or NotAReplicaException)
        {
            Assert.False(isServed, $"{story}: {found.Message}");
        }
        return !isServed;
    }

    private bool Serves(SimulatedDisk disk, string story, bool mayRecover)
    {
        try
        {
            using var store = ReplicaStore.Open(_bench.Context with { Files = disk }, StoreBench.DirectoryPath, mayRecover);
            if (store.Log.Last.Etag < Etag.Max(store.Durable.Control.Acknowledged, store.Durable.Control.Committed))
                return false;
            Assert.True(store.Log.Last.Etag == _last, $"{story}: the journal ends with {store.Log.Last.Etag}, and the store says nothing.");
            // Without the newest committed etag, records wait until a leader has committed them again.
            if (store.Pages.Roots.PublishedEtag < _last)
                return true;
            using (var snapshot = store.OpenSnapshot())
            {
                Assert.True(StoreBench.KeysOf(snapshot).SequenceEqual(_state), $"{story}: the store serves something else, and says nothing.");
                Assert.True(StoreBench.SetsOf(snapshot).SequenceEqual(_sets), $"{story}: the store serves other sets, and says nothing.");
            }
            store.Pages.Verify();
            return true;
        }
        catch (Exception found) when (found is CorruptStoreException or FormatVersionException)
        {
            return false;
        }
    }

    private void Write(int from, int to)
    {
        for (var index = from; index < to; index += 10)
        {
            var first = index;
            Assert.Equal(WriteOutcome.Applied, _bench.Write(request =>
            {
                for (var key = first; key < first + 10; key++)
                    request.Put(StoreBench.Text($"key-{key:000}-{new string('k', 200)}"), StoreBench.Text($"{from}-{new string('x', key % 100 == 0 ? 10_000 : 100)}"));
                request.SetAdd("large"u8, StoreBench.Text($"{first}-{new string('m', 300)}"));
                request.SetAdd("small"u8, StoreBench.Text($"{first}"));
            }).Outcome);
        }
    }

    [GeneratedRegex(@"^\| (\d+) \| ([\d +x]+) \|")]
    private static partial Regex FieldRow();

    /// <summary>The first page in use of each type.</summary>
    private sealed class PagesByType(byte[] file) : ITreeVisitor
    {
        public Dictionary<byte, long> First { get; } = [];

        public bool Wants(KeyRange keys) => true;

        public void Reached(PageRun run) => First.TryAdd(file[(run.First * Page.Bytes) + 4], run.First);

        public bool Entry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree) => true;

        public void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
        {
        }

        public void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys) => throw fault;
    }
}
