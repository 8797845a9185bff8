namespace KvCluster.Tests.Storage.Store;

/// <summary>A line of a program.</summary>
/// <param name="Text">What it does, for people.</param>
/// <param name="Run">Does it. Every command can be run at any time, also when those before it are removed; one that makes no sense then does nothing.</param>
/// <param name="Smaller">The same with less, to be tried when a program with it fails. The simplest come first.</param>
internal sealed record Command<T>(string Text, Action<T> Run, Func<IEnumerable<Command<T>>> Smaller)
{
    /// <summary>A command that has nothing smaller.</summary>
    public Command(string text, Action<T> run)
        : this(text, run, static () => [])
    {
    }
}
