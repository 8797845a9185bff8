using System.Diagnostics.CodeAnalysis;

namespace KvCluster.Simulation.Protocol;

/// <summary>Something that must never happen was seen; ends the run.</summary>
internal sealed class Violation(string what) : Exception(what)
{
    /// <exception cref="Violation">The condition does not hold.</exception>
    public static void Unless([DoesNotReturnIf(false)] bool condition, string what)
    {
        if (!condition)
            throw new Violation(what);
    }
}
