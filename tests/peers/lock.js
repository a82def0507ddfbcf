// Runs node-redlock on one server, on commands from stdin, and exits when stdin closes. The requests are those of lock.py.
'use strict';

const { createInterface } = require('node:readline');
const Redis = require('ioredis');
const { default: Redlock, ExecutionError } = require('redlock');

const client = new Redis(Number(process.argv[2]));
const redlock = new Redlock([client]);
// Emitted for each failed attempt. The outcome of the call reports it as well.
redlock.on('error', () => {});
const locks = new Map();

// Returns false if another client held the lock.
async function unlessRefused(call) {
  try {
    return await call();
  } catch (error) {
    if (error instanceof ExecutionError) return false;
    throw error;
  }
}

const commands = {
  lock: (name, lease, wait) =>
    unlessRefused(async () => {
      const retryDelay = 20;
      const settings = { retryDelay, retryJitter: 0, retryCount: Math.ceil(wait / retryDelay) };
      locks.set(name, await redlock.acquire([name], Number(lease), settings));
      return true;
    }),
  unlock: (name) =>
    unlessRefused(async () => {
      await locks.get(name).release();
      return true;
    }),
  extend: (name, time) =>
    unlessRefused(async () => {
      locks.set(name, await locks.get(name).extend(Number(time)));
      return true;
    }),
  token: async (name) => locks.get(name).value,
  loop: async (name, times, lease) => {
    for (let round = 0; round < times; round += 1) {
      const lock = await redlock.acquire([name], Number(lease), { retryDelay: 5, retryJitter: 3, retryCount: -1 });
      await client.set('counter', Number(await client.get('counter')) + 1);
      await lock.release();
    }
    return times;
  },
};

async function serve() {
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    try {
      console.log('ok', await commands[command](...words));
    } catch (error) {
      console.log('err', error.name, String(error.message).replace(/\s+/g, ' '));
    }
  }
  process.exit(0);
}

serve();
