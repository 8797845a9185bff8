namespace KvCluster.Examples;

/// <summary>The prompt: narrows a selection of packages tag by tag. Reads commands line by line, so that a script can drive it.</summary>
internal sealed class Browser(Catalog catalog, TextReader input, TextWriter output)
{
    private const int PageSize = 10;
    private const int FacetsPerGroup = 5;
    private const string Help = "+TAG narrows, -TAG widens, a name describes a package, n shows more names, q quits";

    private readonly SortedSet<string> _tags = new(StringComparer.Ordinal);
    private string _after = "";

    /// <summary>Runs until the input ends or says so.</summary>
    public async Task RunAsync()
    {
        await output.WriteLineAsync(Help);
        await ShowAsync(withFacets: true);
        while (await input.ReadLineAsync() is { } line && line.Trim() is not ("q" or "quit"))
            await ObeyAsync(line.Trim());
    }

    private async Task ObeyAsync(string command)
    {
        switch (command)
        {
            case ['+', .. var tag] when await catalog.HasAsync(tag):
                _tags.Add(tag);
                await StartAgainAsync();
                break;
            case ['+', .. var tag]:
                await output.WriteLineAsync($"No package has the tag {tag}.");
                break;
            case ['-', .. var tag] when _tags.Remove(tag):
                await StartAgainAsync();
                break;
            case ['-', .. var tag]:
                await output.WriteLineAsync($"{tag} is not selected.");
                break;
            case "n":
                await ShowAsync(withFacets: false);
                break;
            case "":
                await output.WriteLineAsync(Help);
                break;
            default:
                await output.WriteLineAsync(await catalog.DescribeAsync(command) ?? $"There is no package {command}. {Help}.");
                break;
        }
    }

    private Task StartAgainAsync()
    {
        _after = "";
        return ShowAsync(withFacets: true);
    }

    private async Task ShowAsync(bool withFacets)
    {
        var selection = await catalog.SelectAsync(_tags, _after, PageSize);
        if (withFacets)
        {
            await output.WriteLineAsync($"{selection.Count:N0} packages{(_tags.Count == 0 ? "" : " with " + string.Join(" and ", _tags))}");
            // "tag/role::program" belongs to the group "tag/role", "section/games" to "section".
            foreach (var group in selection.Facets.GroupBy(static facet => facet.Tag[..GroupLength(facet.Tag)])
                .OrderBy(static group => group.Key, StringComparer.Ordinal))
            {
                var facets = group.Take(FacetsPerGroup)
                    .Select(static facet => $"{facet.Tag[GroupLength(facet.Tag)..].TrimStart(':', '/')} {facet.Count:N0}");
                await output.WriteLineAsync($"  {group.Key}: {string.Join(", ", facets)}{(group.Count() > FacetsPerGroup ? ", ..." : "")}");
            }
        }
        await output.WriteLineAsync(selection.Names.Count == 0 ? "no more names" : string.Join(" ", selection.Names) + (selection.IsMore ? " ..." : ""));
        // Behind the last page it begins again.
        _after = selection.IsMore ? selection.Names[^1] : "";
    }

    private static int GroupLength(string tag) =>
        tag.IndexOf("::", StringComparison.Ordinal) is > 0 and var end ? end : tag.IndexOf('/') is > 0 and var slash ? slash : tag.Length;
}
