using Xunit.Abstractions;

namespace KvCluster.Shared;

/// <summary>
/// Begins a run with the classes that take longest. One that begins among the last ones runs on when all others have ended, and the other processors have
/// nothing to do. The classes that are not named follow in an order of their own in each run, as without this.
/// </summary>
public abstract class LongestFirst : ITestCollectionOrderer
{
    private readonly List<string> _longest;

    protected LongestFirst(params Type[] longest) => _longest = [.. longest.Select(NameOf)];

    /// <summary>The names of the collections of this run, in the order in which they begin.</summary>
    public static IReadOnlyList<string> Ordered { get; private set; } = [];

    /// <summary>The name of the collection that xunit makes of a class.</summary>
    public static string NameOf(Type tests) => $"Test collection for {tests.FullName}";

    public IEnumerable<ITestCollection> OrderTestCollections(IEnumerable<ITestCollection> testCollections)
    {
        var ordered = testCollections.OrderBy(PlaceOf).ThenBy(static collection => collection.UniqueID).ToList();
        Ordered = [.. ordered.Select(static collection => collection.DisplayName)];
        return ordered;
    }

    private int PlaceOf(ITestCollection collection)
    {
        var place = _longest.IndexOf(collection.DisplayName);
        return place < 0 ? _longest.Count : place;
    }
}
