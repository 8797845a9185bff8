using KvCluster.Wire;

namespace KvCluster.Cli.Files;

/// <summary>A file of which the beginning has been read, and something after its end, as one stream. One thread at a time.</summary>
/// <param name="file">Stays open. Not read again after its end, because a terminal would wait for more.</param>
/// <param name="begin">What has been read of the file.</param>
/// <param name="behind">What follows the file.</param>
internal sealed class JoinedStream(Stream file, ReadOnlyMemory<byte> begin, ReadOnlyMemory<byte> behind = default) : ForwardStream
{
    private ReadOnlyMemory<byte> _left = begin;

    /// <summary>Whether a read has come to the end of the file.</summary>
    public bool IsBehindFile { get; private set; }

    /// <exception cref="IOException">The file cannot be read.</exception>
    public override int Read(Span<byte> buffer)
    {
        if (buffer.IsEmpty)
            return 0;
        if (_left.IsEmpty && !IsBehindFile)
        {
            if (file.Read(buffer) is > 0 and var read)
                return read;
            (IsBehindFile, _left) = (true, behind);
        }
        var count = Math.Min(buffer.Length, _left.Length);
        _left.Span[..count].CopyTo(buffer);
        _left = _left[count..];
        return count;
    }
}
