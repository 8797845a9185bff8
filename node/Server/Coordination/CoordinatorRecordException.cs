namespace KvCluster.Node.Coordination;

/// <summary>A value in the coordinator is not what this program keeps there: somebody else's, or damaged by hand.</summary>
/// <param name="type">What was looked for.</param>
/// <param name="text">What is there.</param>
/// <param name="inner">What is wrong with it.</param>
internal sealed class CoordinatorRecordException(string type, string text, Exception inner)
    : IOException($"The coordinator holds a {type} that cannot be read ({inner.Message}): {Shown(text)}", inner)
{
    private const int ShownMax = 80;

    private static string Shown(string text) => string.Concat(text.Take(ShownMax).Select(letter => char.IsControl(letter) ? ' ' : letter)) + (text.Length > ShownMax ? "..." : "");
}
