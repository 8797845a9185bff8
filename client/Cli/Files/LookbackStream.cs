namespace KvCluster.Cli.Files;

/// <summary>
/// A file's bytes, of which the last ones read are kept. An inflater reads more than it needs, and the end of the compressed data has to be searched in that.
/// For <see cref="CheckedGzipStream"/>. One thread at a time.
/// </summary>
/// <param name="file">The file, which stays open.</param>
/// <param name="begin">The bytes already read from the file.</param>
internal sealed class LookbackStream(Stream file, ReadOnlyMemory<byte> begin) : ForwardStream
{
    private const int ReadBytes = 1 << 16;

    private byte[] _buffer = begin.ToArray();
    private int _taken;
    private int _next;
    private int _end = begin.Length;

    /// <summary>Whether bytes after the last one were requested.</summary>
    public bool IsExhausted { get; private set; }

    /// <exception cref="IOException">The file cannot be read.</exception>
    public override int Read(Span<byte> buffer)
    {
        if (!Have(1))
        {
            IsExhausted = true;
            return 0;
        }

        _taken = _next;
        var length = Math.Min(buffer.Length, _end - _next);
        _buffer.AsSpan(_next, length).CopyTo(buffer);
        _next += length;
        return length;
    }

    /// <summary>The next byte; -1 at the end.</summary>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public override int ReadByte()
    {
        _taken = _next;
        return Have(1) ? _buffer[_next++] : -1;
    }

    /// <summary>Whether all bytes have been read.</summary>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public bool IsAtEnd() => !Have(1);

    /// <summary>
    /// Continues after <paramref name="mark"/>, which begins in or directly after the bytes read last, and is followed by the end of the file or by
    /// <paramref name="follower"/>.
    /// </summary>
    /// <returns>Whether there is such a place.</returns>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public bool TryGoBehind(ReadOnlySpan<byte> mark, ReadOnlySpan<byte> follower)
    {
        Have(mark.Length + follower.Length);
        for (var place = _taken; place <= _next && place + mark.Length <= _end; place++)
        {
            var behind = _buffer.AsSpan(place + mark.Length, Math.Min(follower.Length, _end - place - mark.Length));
            if (!_buffer.AsSpan(place, mark.Length).SequenceEqual(mark) || !follower.StartsWith(behind))
                continue;
            _taken = _next = place + mark.Length;
            return true;
        }

        return false;
    }

    // Whether so many bytes are available. Keeps the bytes read last.
    private bool Have(int count)
    {
        while (_end - _next < count)
        {
            if (_end + ReadBytes > _buffer.Length)
                MoveToFront();
            var read = file.Read(_buffer, _end, _buffer.Length - _end);
            if (read == 0)
                return false;
            _end += read;
        }

        return true;
    }

    private void MoveToFront()
    {
        var kept = _buffer.AsSpan(_taken, _end - _taken);
        var room = kept.Length + ReadBytes <= _buffer.Length ? _buffer : new byte[kept.Length + ReadBytes * 2];
        kept.CopyTo(room);
        (_buffer, _next, _end, _taken) = (room, _next - _taken, kept.Length, 0);
    }
}
