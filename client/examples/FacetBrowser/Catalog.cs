using KvCluster.Client;

namespace KvCluster.Examples;

/// <summary>
/// Packages in a cluster: each is a key with its description as the value, and each tag is a set of package names. All sets have one prefix, so that they are
/// in one shard, which an intersection needs.
/// </summary>
internal sealed class Catalog(KvClient client)
{
    private const string Packages = "package/";
    private const string Sets = "browse/";
    private const int MembersPerCall = 1_000;

    /// <summary>The set that has every package. Without a selection it is what is counted.</summary>
    private const string All = "all";

    /// <summary>Loads packages (path with the name at its end, tab, description) and tags (tag, tab, package name).</summary>
    public async Task LoadAsync(string packagesFile, string tagsFile, TextWriter output)
    {
        await using var load = client.BulkLoad();
        var names = new List<string>();
        foreach (var (path, value) in Records(packagesFile))
        {
            var name = path[(path.LastIndexOf('/') + 1)..];
            await load.AddAsync(Packages + name, value);
            names.Add(name);
        }
        await load.FlushAsync();
        var tags = Records(tagsFile).GroupBy(static record => record.Key, static record => record.Value).ToList();
        await Parallel.ForEachAsync(tags.Select(static tag => (tag.Key, (IEnumerable<string>)tag)).Append((All, names)), async (set, stop) =>
        {
            foreach (var members in set.Item2.Distinct().Chunk(MembersPerCall))
                await client.Sets.AddAsync(Sets + set.Item1, members.Select(static member => (KvKey)member), cancellationToken: stop);
        });
        await output.WriteLineAsync($"{names.Count:N0} packages and {tags.Count:N0} tags loaded");
    }

    /// <summary>The packages that have all tags: how many, the first ones by name, and how many of them have each other tag.</summary>
    /// <param name="tags">Such as "tag/role::program"; none means all packages.</param>
    /// <param name="after">A package name; the page begins behind it. Empty: at the first one.</param>
    /// <param name="page">The size of the page.</param>
    public async Task<Selection> SelectAsync(IReadOnlyCollection<string> tags, string after, int page)
    {
        var result = await client.Sets.IntersectAsync(new KvIntersection
        {
            Keys = [.. (tags.Count == 0 ? [All] : tags).Select(static tag => (KvKey)(Sets + tag))],
            // The name that follows immediately.
            Start = after.Length == 0 ? default(KvKey) : after + "\0",
            Limit = page,
            FacetPrefixes = [Sets + "tag/", Sets + "section/"],
            FacetsMax = 10_000,
        });
        var facets = result.Facets.SelectMany(static facets => facets.Sets)
            .Select(static facet => (facet.Key.ToUtf8String()[Sets.Length..], facet.Count)).Where(facet => !tags.Contains(facet.Item1));
        return new Selection(result.Count, [.. result.Members.Select(static member => member.ToUtf8String())], result.More, [.. facets]);
    }

    /// <summary>Whether any package has a tag.</summary>
    public async Task<bool> HasAsync(string tag) => await client.Sets.CountAsync(Sets + tag) > 0;

    /// <summary>The description of a package; null if there is none.</summary>
    public async Task<string?> DescribeAsync(string name) =>
        await client.GetAsync(Packages + name) is { Found: true } found ? found.Value.ToUtf8String() : null;

    private static IEnumerable<(string Key, string Value)> Records(string file) =>
        File.ReadLines(file).Select(static line => line.Split('\t', 2)).Where(static parts => parts.Length == 2).Select(static parts => (parts[0], parts[1]));
}

/// <summary>What was selected.</summary>
/// <param name="Count">The number of packages.</param>
/// <param name="Names">A page of their names.</param>
/// <param name="IsMore">More names follow.</param>
/// <param name="Facets">Other tags and how many of the packages have them, the largest first.</param>
internal sealed record Selection(ulong Count, IReadOnlyList<string> Names, bool IsMore, IReadOnlyList<(string Tag, ulong Count)> Facets);
