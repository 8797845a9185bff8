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
/// structure without a place here fails. Damage is found or harmless: what the store serves is all that was acknowledged, or it says what is wrong. Nothing of
/// it takes longer than reading everything.
/// </summary>
public sealed partial class DamagedFieldTests : IDisposable
{
    private const string State = StoreBench.DirectoryPath + "/state-00000001";
    private const string Data = State + "/data";
    private const string Control = StoreBench.DirectoryPath + "/control";

    /// <summary>
    /// Structures that are not in a replica's directory, one of which no record here has any, which the checksum of a record's body covers, and compressed
    /// values, which have damages of their own (<see cref="Pages.CompressedValueTests"/>).
    /// </summary>
    private static readonly string[] WithoutAPlace = ["Snapshot stream", "Results, table 1", "Compressed value, table 1", "Shared journal"];

    /// <summary>A case takes some hundredths of a second. One that takes this long does not end.</summary>
    private static readonly TimeSpan CaseLimit = 2 * Eventually.Limit;

    /// <summary>
    /// Every damage of every field takes seconds. Without the switch each field gets one of them, at one or two places of its structure, and half of these are
    /// tried with every change.
    /// </summary>
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
        Write(0, 200, version: 1);
        _bench.Checkpoint();
        _older = _bench.Disk.Copy();
        // Until the places of these values were given to later ones.
        for (var version = 2; version < 8; version++)
        {
            Write(0, 40, version);
            _bench.Checkpoint();
        }
        Write(400, 420, version: 8);
        _bench.Checkpoint();
        Write(420, 450, version: 9);
        _bench.Store.Log.WriteControl(
            _bench.Store.Durable.Control with { Acknowledged = _bench.Store.Durable.Last.Etag, Committed = _bench.Store.Durable.Last.Etag });
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
    public void Field_Damaged_IsFoundOrHarmless() => DamageFields(half: 0);

    [Fact]
    [Trait("Turn", "2")]
    public void Field_DamagedOfTheOtherHalf_IsFoundOrHarmless() => DamageFields(half: 1);

    private void DamageFields(int half)
    {
        var (chosen, tried, found, turn) = (0, 0, 0, 0);
        foreach (var (structure, places) in Places())
        {
            foreach (var (offset, length) in Fields(structure))
            {
                turn++;
                foreach (var (place, (path, start)) in places.Index())
                {
                    // The checksum of a body is at its end.
                    var at = start + (offset >= 0 ? offset : BodyBytesAt(path, start) + offset);
                    foreach (var (damage, (name, apply)) in Damages.Index())
                    {
                        if (!TakesAll && ((place + turn) % places.Count > places.Count / 4 || (damage + turn) % Damages.Count > 0))
                            continue;
                        if (chosen++ % 2 != half)
                            continue;
                        tried++;
                        found += IsFound($"{structure} at {start} of {path}, field at {offset}: {name}", disk => Change(disk, path, at, length, apply), TakesAll
                            || tried % 3 == 0) ? 1 : 0;
                    }
                }
            }
        }
        Assert.True(tried >= 40 && found > tried / 8, $"Of {tried} damages, {found} were found.");
    }

    /// <summary>
    /// A whole slot, header, record, page or run is missing, torn, as in an older version, or another one of its kind, or the file ends in it.
    /// </summary>
    [Fact]
    [Trait("Turn", "5")]
    public void Structure_MissingTornOlderSwappedOrCut_IsFoundOrHarmless()
    {
        var (tried, found) = (0, 0);
        // A body is part of the record that begins with its envelope, and a cell is smaller than what is torn.
        foreach (var (structure, places) in Places()
            .Where(places => places.Structure is not ("Body" or "Cell with a tree") && !places.Structure.Contains("table", StringComparison.Ordinal)))
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

    /// <summary>A page inside of a run has no header of its own: only the checksum of the whole run, which the leaf has, tells it from another one.</summary>
    [Fact]
    [Trait("Turn", "5")]
    public void PageInsideARun_ZeroedOlderOrAnother_IsFound()
    {
        var (data, before) = (_bench.Disk.ReadAll(Data), _older.ReadAll(Data));
        var inner = Links(data).Where(static link => link.ToRun)
            .SelectMany(link => Enumerable.Range(1, link.Pages - 1).Select(page => link.Target + ((long)page * Page.Bytes))).ToList();
        var older = 0;
        foreach (var (index, at) in inner.Index())
        {
            Check("zeroed", new byte[Page.Bytes]);
            Check("another one in its place", PageAt(data, inner[(index + 1) % inner.Count]));
            if (before.Length < at + Page.Bytes || PageAt(before, at).AsSpan().SequenceEqual(PageAt(data, at)))
                continue;
            older++;
            Check("as in an older version", PageAt(before, at));

            void Check(string damage, byte[] page)
            {
                Assert.NotEqual(PageAt(data, at), page);
                Assert.True(
                    IsFound($"The page at {at}, inside of a run: {damage}", disk => disk.WriteAll(
                        Data, [.. data.AsSpan(0, (int)at), .. page, .. data.AsSpan((int)at + Page.Bytes)])),
                    $"The page at {at}, inside of a run, {damage}, is not found.");
            }
        }
        Assert.True(inner.Count > 4 && older > 0, $"There are {inner.Count} pages inside of runs, and {older} of them had another content.");
    }

    /// <summary>
    /// A parent is sound, up to the meta page, but what it says about one child is wrong: the child's checksum, its place, or the length of its value. All of
    /// its own checksums are right, so only the comparison with the child finds it.
    /// </summary>
    [Fact]
    [Trait("Turn", "5")]
    public void Link_WrongInASoundParent_IsFound()
    {
        var data = _bench.Disk.ReadAll(Data);
        var links = Links(data);
        var free = FreePage() * Page.Bytes;
        Assert.Equal(
            ["branch", "cell of a run", "cell with a tree", "directory of the free map", "meta page"], links.Select(link => link.From).Distinct().Order());
        foreach (var link in links)
        {
            Check("checksum", link.Offset + 8, [(byte)(data[link.Offset + 8] ^ 1)]);
            Check("reference to a free page", link.Offset, BitConverter.GetBytes(free));
            Check("reference beyond the file", link.Offset, BitConverter.GetBytes(link.Target + data.Length));
            Check("reference between two pages", link.Offset, BitConverter.GetBytes(link.Target + 512));
            if (link.ToRun)
                Check("length of the value", link.Offset - 4, [(byte)(data[link.Offset - 4] ^ 1)]);

            void Check(string wrong, long at, byte[] bytes) => Assert.True(
                IsFound($"{link.From}, link at {link.Offset}: {wrong}", disk =>
                {
                    var changed = (byte[])data.Clone();
                    bytes.CopyTo(changed, at);
                    link.Mend(changed);
                    disk.WriteAll(Data, changed);
                }),
                $"{link.From}, link at {link.Offset}, whose parents are sound: the wrong {wrong} is not found.");
        }
    }

    /// <summary>What the last test relies on: a parent in which nothing but its checksum was changed, and that of its parents, is sound.</summary>
    [Fact]
    public void Link_RightInAParentThatWasMended_IsServed()
    {
        var data = _bench.Disk.ReadAll(Data);
        foreach (var (index, link) in Links(data).Where(static link => link.Parent is not null).Index())
        {
            var changed = (byte[])data.Clone();
            // The etag of the checkpoint that wrote the page.
            changed[link.Parent!.Target + 16] ^= 1;
            link.Mend(changed);
            Assert.False(
                IsFound($"{link.From}, link at {link.Offset}: only mended", disk => disk.WriteAll(Data, changed), asksAll: TakesAll || index % 4 == 0));
        }
    }

    [Fact]
    [Trait("Turn", "5")]
    public void File_MissingTruncatedOrExtended_IsFoundOrHarmless()
    {
        var found = 0;
        var paths = StoreBench.PathsOf(_bench.Disk, StoreBench.DirectoryPath).ToList();
        foreach (var path in paths)
        {
            found += IsFound($"{path}: missing", disk => disk.Delete(path)) ? 1 : 0;
            foreach (var length in (int[])[0, 100, 4096, 12_000])
                found += IsFound(
                    $"{path}: truncated to {length}",
                    disk => disk.WriteAll(path, disk.ReadAll(path).AsSpan(0, Math.Min(length, disk.ReadAll(path).Length)))) ? 1 : 0;
            found += IsFound($"{path}: extended", disk => disk.WriteAll(path, [.. disk.ReadAll(path), .. new byte[5000]])) ? 1 : 0;
            if (_older.FileExists(path))
                found += IsFound($"{path}: as in an older version", disk => disk.WriteAll(path, _older.ReadAll(path))) ? 1 : 0;
        }
        Assert.True(found > paths.Count, $"Only {found} damages of {paths.Count} files were found.");
    }

    [Fact]
    public void Structures_OfTheFormat_HaveAPlace() =>
        Assert.Equal(Structures().Select(structure => structure.Name).Where(name => !WithoutAPlace.Contains(name)).Order(), Places()
            .Select(places => places.Structure).Distinct().Order());

    /// <summary>Where each structure is in the store's files.</summary>
    private List<(string Structure, List<(string Path, long Start)> Places)> Places()
    {
        using var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath);
        var scan = replica.Journal!;
        var pages = new PagesByType(_bench.Disk.ReadAll(Data));
        foreach (var tree in replica.Newest!.Trees)
            new TreeReading(replica.Space!, pages).Read(tree);
        pages.Reached(new PageRun(replica.Newest.FreeDirectory.Number, 1));
        pages.Reached(new PageRun(replica.Free!.MapPages().First().Reference.Number, 1));
        Assert.Equal(5, pages.First.Count);
        var segments = scan.Segments.Select(segment => (scan.Place(segment.Header.Number, 0).Path, 0L)).ToList();
        JournalEntry[] records = [scan.Entries[0], scan.Entries[^2], scan.Entries[^1]];
        return
        [
            ("Control file", [(Control, 0), (Control, 4096)]),
            ("Segment header", [segments[0], segments[^1]]),
            ("Envelope", [.. records.Select(record => (scan.Place(record.Segment, 0).Path, record.Offset))]),
            ("Body", [.. records.Select(record => (scan.Place(record.Segment, 0).Path, record.Offset + RecordEnvelope.Bytes))]),
            ("Meta page", [(Data, 0), (Data, Page.Bytes)]),
            ("Page header", [.. pages.First.Values.Select(page => (Data, page * Page.Bytes))]),
            ("Cell with a tree", [(Data, CellWithATree(replica))]),
            ("Sets, table 1", [(Data, ValueOfSet(replica))]),
            ("Leaf and branch, table 1", [(Data, CellOfKey(replica, pages, isRun: false))]),
            ("Leaf and branch, table 2", [(Data, CellOfKey(replica, pages, isRun: true))]),
            ("Leaf and branch, table 3", [(Data, CellOfBranch(replica, child: 0)), (Data, CellOfBranch(replica, child: 1))]),
        ];
    }

    /// <summary>Where the cell of the only large set is in the file; its leaf is the root of the tree.</summary>
    private static unsafe long CellWithATree(StoppedReplica replica) =>
        PlaceIn(replica, RootOf(replica, TreeId.Sets), static (leaf, index) => TreePage.HasTree(leaf, index) ? Page.Slots(leaf)[index] : null);

    /// <summary>Where the value of the small set is.</summary>
    private static unsafe long ValueOfSet(StoppedReplica replica) => PlaceIn(replica, RootOf(replica, TreeId.Sets), static (leaf, index) =>
        TreePage.HasTree(leaf, index) ? null : Page.Slots(leaf)[index] + TreePage.LeafCellHeader + TreePage.RestLength(TreePage.SuffixLength(leaf, index)));

    /// <summary>Where the first leaf has the cell of a key whose value is in a run, or is not.</summary>
    private static unsafe long CellOfKey(StoppedReplica replica, PagesByType pages, bool isRun) =>
        PlaceIn(replica, PageRef.ToFile(pages.First[(byte)PageType.Leaf]), (leaf, index) =>
            TreePage.Reference(leaf, index) != null == isRun ? Page.Slots(leaf)[index] : null);

    private static unsafe long CellOfBranch(StoppedReplica replica, int child) =>
        PlaceIn(replica, RootOf(replica, TreeId.Kv), (branch, index) => index == child ? Page.Slots(branch)[index] : null);

    private static PageRef RootOf(StoppedReplica replica, TreeId tree) => replica.Newest!.Trees[(int)tree].Link.Reference;

    /// <summary>The first place that is found in the entries of a page.</summary>
    private static unsafe long PlaceIn(StoppedReplica replica, PageRef reference, PlaceOfEntry find)
    {
        var page = replica.Space!.Locate(reference);
        for (var index = 0; index < Page.Count(page); index++)
        {
            if (find(page, index) is { } place)
                return (long)reference.Value + place;
        }
        throw new InvalidOperationException("There is no such entry.");
    }

    /// <summary>A page that neither checkpoint reaches.</summary>
    private long FreePage()
    {
        using var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath);
        return replica.Free!.FreeRuns()[0].First;
    }

    /// <summary>
    /// All that refers to a page of the newest checkpoint: roots in its meta page, children of branches, runs and trees of leaves, and the free map.
    /// </summary>
    private List<Link> Links(byte[] data)
    {
        long meta;
        var links = new List<Link>();
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
        {
            meta = replica.Newest!.PageNumber * Page.Bytes;
            links.AddRange(replica.Newest.Trees.Index().Where(static tree => !tree.Item.Link.Reference.IsNone)
                .Select(tree => new Link(data, "meta page", meta + 128 + (tree.Index * 32), null)));
        }
        links.Add(new Link(data, "meta page", meta + 56, null));
        for (var next = 0; next < links.Count; next++)
            links.AddRange(links[next].Below(data));
        return links;
    }

    private static byte[] PageAt(byte[] data, long at) => data.AsSpan((int)at, Page.Bytes).ToArray();

    /// <summary>The length of the body that begins here.</summary>
    private int BodyBytesAt(string path, long start) => BitConverter.ToInt32(_bench.Disk.ReadAll(path), (int)start + 4);

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
            return RecordEnvelope.TryRead(bytes, out var envelope) ? RecordEnvelope.RecordBytes(envelope.BodyBytes)
                : throw new InvalidOperationException("There is no record.");
        fixed (byte* page = bytes)
        {
            if (structure == "Page header" && Page.Type(page) == PageType.Overflow)
                return OverflowRun.PagesFor(Page.ValueLength(page)) * Page.Bytes;
        }
        return structure is "Meta page" or "Page header" ? Page.Bytes : RecordEnvelope.BlockBytes;
    }

    /// <summary>
    /// The tables of the format. In one without offsets the fields follow each other; those behind a field of varying length are left out. A negative offset
    /// counts from the end.
    /// </summary>
    private static IEnumerable<(string Name, List<(long Offset, int Length)> Fields)> Structures()
    {
        var (heading, table, isInOrder) = ("", 0, false);
        List<(long, int)>? fields = null;
        foreach (var line in House.House.Read("node/Storage/FORMAT.md").Split('\n'))
        {
            if (line.StartsWith('#'))
                (heading, table) = (line.TrimStart('#', ' '), 0);
            else if (line.StartsWith("| offset | length |", StringComparison.Ordinal) || line == "| length | |")
                (fields, isInOrder, table) = ([], line == "| length | |", table + 1);
            else if (fields is not null && isInOrder && FieldInOrderRow().Match(line) is { Success: true } next)
                fields.Add((fields.Sum(static field => field.Item2), LengthOf(next.Groups[1].Value)));
            else if (fields is not null && !isInOrder && FieldRow().Match(line) is { Success: true } row)
                fields.Add((row.Groups[1].Value.Length > 0 ? int.Parse(row.Groups[1].Value, CultureInfo.InvariantCulture)
                    : -int.Parse(row.Groups[2].Value, CultureInfo.InvariantCulture), LengthOf(row.Groups[3].Value)));
            else if (fields is { Count: > 0 } && !line.StartsWith("|--", StringComparison.Ordinal) && (isInOrder || !line.StartsWith('|')))
            {
                yield return (isInOrder ? $"{heading}, table {table}" : heading, fields);
                fields = null;
            }
        }
    }

    /// <summary>A length as in "8", "8 + 8" or "16 x 32".</summary>
    private static int LengthOf(string text) =>
        text.Split('+').Sum(part => part.Split('x').Aggregate(1, (product, factor) => product * int.Parse(factor.Trim(), CultureInfo.InvariantCulture)));

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
        var (isFound, failed) = (false, default(Exception));
        var thread = new Thread(() => failed = Record.Exception(() => isFound = IsFoundNow(story, damage, asksAll))) { IsBackground = true };
        thread.Start();
        Assert.True(thread.Join(CaseLimit), $"{story}: not ended after {CaseLimit}.");
        if (failed is not null)
            throw new Xunit.Sdk.XunitException($"{story}: {failed.Message}", failed);
        return isFound;
    }

    private bool IsFoundNow(string story, Action<SimulatedDisk> damage, bool asksAll)
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
            store.Committed.Add(_last);
            store.Committed.ApplyAll();
            Assert.True(store.Pages.Roots.PublishedEtag == _last, $"{story}: what is committed ends with {store.Pages.Roots.PublishedEtag}.");
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

    private void Write(int from, int to, int version)
    {
        for (var index = from; index < to; index += 10)
        {
            var first = index;
            Assert.Equal(WriteOutcome.Applied, _bench.Write(request =>
            {
                for (var key = first; key < first + 10; key++)
                    request.Put(StoreBench.Text($"key-{key:000}-{new string('k', 200)}"), StoreBench.Text(Value(key, version)));
                request.SetAdd("large"u8, StoreBench.Text($"{first}-{new string('m', 300)}"));
                request.SetAdd("small"u8, StoreBench.Text($"{first}"));
            }).Outcome);
        }
    }

    /// <summary>
    /// Every twentieth value is large: by turns divided, with two pages in its run, and in a run of two pages as a whole. All of these differ from those of
    /// other keys and versions.
    /// </summary>
    private static string Value(int key, int version) => key % 20 == 0
        ? string.Concat(Enumerable.Range(0, 4_000).Select(part => $"{key}-{version}-{part}."))[..(key % 40 == 0 ? 17_000 : 15_000)]
        : $"{version}-{new string('x', 100)}";

    [GeneratedRegex(@"^\| (?:(\d+)|length - (\d+)) \| ([\d +x]+) \|")]
    private static partial Regex FieldRow();

    [GeneratedRegex(@"^\| ([\d +x]+) \|")]
    private static partial Regex FieldInOrderRow();

    /// <summary>Where in a page an entry has what is looked for; null if it has not.</summary>
    private unsafe delegate int? PlaceOfEntry(byte* page, int index);

    /// <summary>A reference in the file with the checksum behind it, and the one that leads to its page; null in a meta page.</summary>
    private sealed unsafe class Link(byte[] data, string from, long offset, Link? parent)
    {
        public string From { get; } = from;

        public long Offset { get; } = offset;

        public Link? Parent { get; } = parent;

        /// <summary>Where the page or run begins to which it refers.</summary>
        public long Target { get; } = BitConverter.ToInt64(data, (int)offset);

        public bool ToRun { get; } = data[BitConverter.ToInt64(data, (int)offset) + 4] == (byte)PageType.Overflow;

        /// <summary>Pages of the run.</summary>
        public int Pages { get; } = OverflowRun.PagesFor(BitConverter.ToUInt32(data, (int)BitConverter.ToInt64(data, (int)offset) + 40));

        /// <summary>The links in its page.</summary>
        public List<Link> Below(byte[] file)
        {
            var links = new List<Link>();
            fixed (byte* bytes = file)
            {
                var page = bytes + Target;
                for (var index = 0; index < Page.Count(page); index++)
                {
                    if (Page.Type(page) == PageType.FreeDirectory)
                        links.Add(new Link(file, "directory of the free map", Target + Page.HeaderBytes + (index * 16), this));
                    else if (Page.Type(page) is PageType.Branch or PageType.Leaf && TreePage.Reference(page, index) is var link && link != null)
                        links.Add(new Link(
                            file, Page.Type(page) == PageType.Branch ? "branch" : TreePage.HasTree(page, index) ? "cell with a tree" : "cell of a run",
                            (byte*)link - bytes, this));
                }
            }
            return links;
        }

        /// <summary>
        /// Gives the page that it is in the right checksum, and all pages above that up to the meta page. The other meta page, whose checkpoint may have the
        /// same pages, is torn.
        /// </summary>
        public void Mend(byte[] file)
        {
            for (var link = Parent; link is not null; link = link.Parent)
            {
                var checksum = Crc32C.Of(file.AsSpan((int)link.Target + 4, Page.Bytes - 4));
                BitConverter.TryWriteBytes(file.AsSpan((int)link.Target), checksum);
                BitConverter.TryWriteBytes(file.AsSpan((int)link.Offset + 8), checksum);
            }
            var root = this;
            while (root.Parent is not null)
                root = root.Parent;
            var meta = (int)(root.Offset / Page.Bytes * Page.Bytes);
            BitConverter.TryWriteBytes(file.AsSpan(meta), Crc32C.Of(file.AsSpan(meta + 4, Page.Bytes - 4)));
            file.AsSpan(meta ^ Page.Bytes, Page.Bytes).Clear();
        }
    }

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
