using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// Why a repeated request is not applied twice, and why nobody can use another's session and sequence. The id of a session has 128 random bits that only its
/// opener hears, and a result is kept with a digest of its request. Pure; writer executor.
/// </summary>
internal static class ExactlyOnce
{
    /// <summary>
    /// Whether a request with this identity is answered without being executed: with the result that it had, or because its session or its sequence is over, or
    /// because another request has the sequence.
    /// </summary>
    /// <param name="batch">The newest state.</param>
    /// <param name="session">The request's session; null if there is none with its id.</param>
    /// <param name="sequence">The request's sequence.</param>
    /// <param name="lowestOpen">The lowest sequence that the client calls open.</param>
    /// <param name="digest">The digest of the request.</param>
    /// <param name="answer">The answer.</param>
    public static bool TryAnswer(
        WriteBatch batch, [NotNullWhen(false)] SessionResults? session, ulong sequence, ulong lowestOpen, uint digest, out WriteResult answer)
    {
        if (session is null)
        {
            answer = WriteResult.Of(WriteOutcome.SessionExpired);
            return true;
        }
        if (!session.IsOpen(sequence, lowestOpen))
        {
            answer = WriteResult.Of(WriteOutcome.SequenceClosed);
            return true;
        }
        if (!session.TryFind(batch, sequence, out answer, out var digestOfFirst))
            return false;
        if (digest != digestOfFirst)
            answer = WriteResult.Of(WriteOutcome.SequenceReused);
        return true;
    }
}
