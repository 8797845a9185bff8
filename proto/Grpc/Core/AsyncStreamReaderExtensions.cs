using System.Runtime.CompilerServices;

namespace Grpc.Core;

/// <summary>Adapts streams to the language's async streams.</summary>
internal static class AsyncStreamReaderExtensions
{
    public static Task<bool> MoveNext<T>(this IAsyncStreamReader<T> reader)
        where T : class => reader.MoveNext(CancellationToken.None);

    public static async IAsyncEnumerable<T> ReadAllAsync<T>(
        this IAsyncStreamReader<T> reader,
        [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        while (await reader.MoveNext(cancellationToken).ConfigureAwait(false))
            yield return reader.Current;
    }
}
